"""Who is in memory, and who waits: what happens, then what follows, in words (see ``Scene``)."""

import pytest
from residency_rig import Scene

LOADS = {
    "a model that many ask for is loaded once":
        "ask a40 |; ask a' |; ask a''; got a a' a''; loads a",
    "the idle model whose last use is longest ago leaves":
        "load a40 b40 a c40; loaded a c;"
        " told evict b:1, 40 B freed: least recently used, to make room for c:1",
    "a small old one stays where it does not suffice, and the reason says so":
        "load a20 b60 c70;"
        " told evict b:1, 60 B freed: least recently used that frees enough, to make room for c:1",
    "what was loaded ahead leaves before all that was used":
        "load a40; ahead b40; end b; load c40; loaded a c",
    "a load ahead of its use evicts nobody":
        "load a40 b40; ahead c40; fails c MemoryExhausted .*nobody is evicted for it",
    "a model that a request names twice is leased once":
        "run a40+a; leases 1",
    "the models of one lease are in memory together, and no victims of it":
        "load a40 b40; run a+c40; loaded a c",
    "two leases that each wait for a load choose no model of the other":
        "load a40 b40; ask a+c60 |; ask b+d60; end a+c; end b+d",
    "a victim in use finishes its requests, and counts until it is closed":
        "run a40; ask big100; waits big; is a UNLOADING; books 40 100; ask huge101;"
        " fails huge MemoryExhausted; end a; got big",
    "a request for a model that leaves is answered by a new load":
        "run a40; ask big100; ask a'; waits a'; end a; end big; got a'; loads a big a",
    "nobody is refused while a load is under way that may take less than it claims":
        "ask a40 | 0; ask big100 | 1; waits big; pin a |; waits big; work;"
        " fails big MemoryExhausted; end a",
    "a load that fails tells all who wait, and the reason, until it succeeds":
        "breaks a LoadFailed; ask a40 |; ask a' |; ask a''; fails a LoadFailed scripted;"
        " fails a' LoadFailed scripted; fails a'' LoadFailed scripted; books 0;"
        " absent a broken scripted; mends a; wait 1; load a; absent a",
    "after a failed load requests fail for a moment, but who loads by hand gets a try":
        "breaks a LoadFailed; ask a40; ask a'; fails a' LoadFailed scripted .it is not tried; loads"
        " a; hand a''; fails a'' LoadFailed scripted$; mends a; hand a'''; got a'''; loads a a a",
    "whatever a loader raises is a failed load that names it":
        "breaks a ZeroDivisionError; ask a40; fails a LoadFailed .*ZeroDivisionError: scripted",
    "what failed before any load is tried anew by each request":
        "ask a; fails a LoadFailed; load a40; loaded a",
    "a failure of one model releases the others of its lease":
        "breaks c LoadFailed; load a40; ask a+c40; fails a+c LoadFailed; load big100; loaded big",
    "a load that fails evicts nobody":
        "load a40; breaks b LoadFailed; ask b40; fails b LoadFailed scripted; loads a b; loaded a",
    "a load that ran out of memory begins anew when idle models have left":
        "load a40; breaks b MemoryExhausted; ask b40 | 0 0; waits b; mends b; end b; loaded b; told"
        " evict a:1, 40 B freed: least recently used, since memory ran out while b:1 was loading",
    "it is not tried again where nobody may leave for it":
        "breaks b MemoryExhausted; ask b40; fails b MemoryExhausted scripted; loads b; books 0",
    "it is tried once more at most":
        "load a40; breaks b MemoryExhausted; ask b40; fails b MemoryExhausted scripted;"
        " loads a b b; books 0",
    "no more leave for the second try than must":
        "load a40 d20; breaks b MemoryExhausted; ask b40; fails b MemoryExhausted scripted;"
        " loads a d b b; loaded d; books 20",
    "nobody leaves for a load ahead that ran out of memory":
        "load a40; breaks b MemoryExhausted; ahead b40; fails b MemoryExhausted scripted; loaded a",
    "a load that found no memory is tried again at once":
        "breaks a MemoryExhausted; ask a40; mends a; load a; loaded a",
    "a load by hand goes on until the last who asked for it gives it up":
        "hand a40 |; hand a' | 0 0; abandon a |; is a LOADING; abandon a'; cancelled a a';"
        " loaded; told cancelled a:1: given up while it was loading",
    "a load that is given up too late stays, and its lease is given back":
        "hand a40; abandon a; loaded a; leases 0",
    "a load that a request gave up goes on, or a slow model would never load":
        "ask a40 | 0; abandon a; loaded a",
    "nothing says why a model is absent once it has room promised":
        "load a40 b40 c40; absent a least recently used, to make room for c:1; lease b+c; ask a;"
        " here a b c; absent a",
}  # fmt: skip

UNLOADS = {
    "an unload is done when the last lease is back and the memory is free":
        "run a40; unload a; stays a; end a; gone a; books 0;"
        " told unload a:1, 40 B freed: unloaded by hand",
    "an unload lets a load finish for the requests that wait":
        "ask a40 | 0; unload a; got a; stays a; end a; gone a",
    "two unloads of a model are one":
        "load a40; unload a |; unload a'; gone a a'",
    "an unload ends a load by hand that waits for its room, and who waits behind it goes on":
        "load a40 b40; lease a; lease b; hand big100 |; ask d20; unload big |; gone big;"
        " fails big ModelNotReady .*unloaded while it was loading; end a b; got d; loads a b d",
    "an unload refuses loads that wait in the line or for an estimate, but no requests":
        "run a40* b40*; hand big100 |; ask big'; hand big'' |; unload big |; gone big; work; fails"
        " big ModelNotReady big:1 was unloaded before it was loaded; fails big'' ModelNotReady"
        " big:1 was unloaded before it was loaded; waits big'; end a b; got big'",
    "a request for a model whose load is being ended loads it anew":
        "hand a40 | 0; unload a |; ask a'; end a'; loaded a",
    "who was not used for long enough leaves, but for pinned and used ones":
        "load a40 d20; pin d; wait 100; run b40; expire 300 200; wait 200; expire 300 300; work;"
        " loaded b d; told expire a:1, 40 B freed: not used for 5 min; wait 700; end b |;"
        " expire 300 300; work; loaded b d",
    "one that was used later stays until its own time has come":
        "load a40; wait 100; load b40; wait 200; expire 300 100; work; loaded b",
    "idle models leave for the memory of a run, in the policy's order":
        "load d20 a40 b40; pin a; room b 15 1; work; loaded a b; room b 15 0",
    "a renewed model is asked for all the time, keeps its pin, and is loaded anew":
        "run a40; pin a; renew a |; pending a 1; work; end a |; pending a 1; work; loads a a;"
        " renew b40; loaded a; ask big100; fails big MemoryExhausted",
    "a renewal is no use, and nobody holds the model afterwards":
        "load a40 b40; renew a; loaded a b; leases 0; load c40; loaded b c",
    "a renewed model leaves also when the request that held it is refused":
        "breaks c LoadFailed; ask a40+c40 | 0 0; is a READY; renew a; fails a+c LoadFailed"
        " scripted; loaded a; loads a c a",
}  # fmt: skip

GROWTH = {
    "a session that took more than it claimed is booked as it is, and told":
        "ask a40 | 0; size a50; end a; books 50;"
        " told outgrown a:1 holds 50 B, 10 B more than it claimed",
    "as many idle models leave as one outgrew the budget by":
        "load b40 d20; ask a40 | 0; size a50; end a; loaded a d;"
        " told evict b:1, 40 B freed: least recently used, to fit the budget of 100 B",
    "where nobody is idle when a model grows, who was promised room gets it later":
        "run a40 c40; ask big100; grow a 30; books 110 100; end c; waits big; end a; end big;"
        " books 100",
    "one that outgrew what another was promised leaves once it is idle":
        "run a40 c40; ask sixty60; is a UNLOADING; grow c 30; end c a; got sixty",
    "models over the budget leave when they are idle, though nobody waits":
        "run a40 b40; grow a 30; loaded a b; end b; loaded a",
    "who was promised room that a pinned model took is refused, and others go on":
        "run a40 b40; pin a; ask c40; grow a 30; ask d20; fails c MemoryExhausted c:1 needs 40 B,"
        " 30 B of 100 B are free and 70 B may not be evicted. a budget of 110B would do$; end b;"
        " got d; books 90",
}  # fmt: skip

TURNS = {
    "who waits for room is not passed by one who came later, even if that would fit":
        "ask a40 | 0; ask big100 | 1; ask d20 | 1 0; here a big; end a; end big; got d",
    "small requests that come after a big one do not pass it":
        "run a40; load b40; ask big100; ask b; ask c40; ask d20; waits b c d; end a; end big;"
        " got b c d",
    "one that waits for its own victim holds up nobody who has room":
        "run a40 b40; ask c40; waits c; load d20; end a |; end b; got c",
    "a model whose lease waits for another load is nobody's victim":
        "load a40; ask a+c60 | 0; ask d40 | 1; is a READY; work; end a+c; got d",
    "room that an earlier one waits for is not taken by a later one, though it is free":
        "run a40 b30; unload b; ask c80; ask d20; waits d; end a; end b; loads a b c d; got c d",
    "a request for a model that is leaving holds up nobody":
        "run a40; unload a; ask a'; load d20; ask huge101; fails huge MemoryExhausted; waits a';"
        " end a; got a'",
    "who fits in what the earlier ones do not need goes before them":
        "run f60*; ask big50; waits big; ask small20; got small; end f; got big",
    "idle models leave for a small one too, while a large one waits":
        "load a20 small20; run f60*; ask big50; run tiny10; here f small tiny; waits big; end f;"
        " got big",
    "a later one waits that would take of what the earlier one needs":
        "run f60*; ask whole100; ask tiny10; waits tiny; end f; end whole; got tiny",
    "where only those that went first are in the way of an earlier one, it is next":
        "run f40* g40*; ask big55; ask tiny10 | 0; end g |; ask b10 | 1; here f g tiny; work;"
        " end tiny; end big; got b",
    "who waited only behind a request goes on as soon as that is given up":
        "run f60*; ask whole100; ask tiny10; abandon whole; got tiny",
    "who waits for a busy function gets the room of a pin that ends":
        "load small20; pin small; run f60*; ask big40; waits big; unpin small; got big",
    "models that a wait kept may leave as soon as it is given up, though its load goes on":
        "load big50; ask big+small20 | 0; ask f60* | 1; loaded big; abandon big+small |;"
        " is big UNLOADING; work; got f",
    "when nobody waits any more, it does not count who went first":
        "run f60*; ask big50; run tiny10*; passed tiny; abandon big |; passed",
    "nor on a device, while others wait for another device":
        "budgets 100 200; free 10 1000; run g120*; ask huge150; free 1000 10; run f60*; ask big50;"
        " run tiny10; passed tiny; abandon big |; waits huge; passed; end tiny f g; got huge",
    "one that went first and left is forgotten":
        "run f60*; ask big50; load tiny10; passed tiny; unload tiny; passed",
    "one that got its room in its turn did not go first":
        "run g40* f60*; ask a50; ask big60; end f | 0; ask tiny10 | 1; here a tiny g",
    "one that went first and is idle is in nobody's way":
        "run f60*; ask big50; load tiny10; run small20; waits big",
    "who waits for free memory beside a pinned load has that before a later one":
        "size pinned50; takes pinned 40; pin pinned; ask pinned | 0; ask waits60 | 1;"
        " ask small20 | 1; here pinned; work; got waits",
    "a request for a model that others had loaded waits behind nobody":
        "run f60* g40*; ask a20; ask whole100; ask other100; ask a'; end g; got a a'",
    "a call goes first where nobody else does, since those that wait may wait for its run":
        "run f60*; ask whole100; ask other100; ask tiny10; waits tiny; run f>b10",
    "what never fits is refused at once, before its turn":
        "run f60*; ask whole100; ask other100; ask huge101; fails huge MemoryExhausted",
    "where nobody is evicted, nobody takes the free memory that another waits for":
        "under never; size loads70; takes loads 50; load idle10; ask loads | 0; ask waits40 | 1;"
        " ask small10 | 1; here idle loads; work; got waits",
}  # fmt: skip

CALLS = {
    "what a run asks for cannot push out the model that runs":
        "run a60*; ask a>b60; fails a>b MemoryExhausted .*60 B may not be evicted",
    "a run that may call others is waited for, and its calls pass the queue":
        "run a40*; ask big100; is a READY; ask a>d20; end a>d |; end a |; unpin d; got big",
    "a run does not wait for its own model to leave":
        "run a40*; unload a; ask a>a; fails a>a ModelNotReady .*cannot be called from within;"
        " end a",
    "room of a caller is promised to nobody before its run ends":
        "run a40*; unload a; ask big100; load a>d20; waits big; end a; got big",
    "a load ahead evicts nobody, but waits for a function that is being unloaded":
        "run a40*; unload a; ahead big100; waits big; end a; got big",
    "a call that only its own run could give room is refused":
        "run a40*; unload a; ask a>big100;"
        " fails a>big MemoryExhausted .*60 B of 100 B are free and 40 B may not",
    "also where others wait for that model":
        "run a40*; unload a; ask big100; ask a>big;"
        " fails a>big MemoryExhausted .*60 B of 100 B are free and 40 B may not; end a; got big",
    "of two runs that each wait for the other's model to leave, the second is refused":
        "run a40* b40*; ask a>c40; waits a>c; ask b>e40;"
        " fails b>e MemoryExhausted .*80 B may not be evicted; end b; end a>c a",
    "a call whose promised room is gone is refused, and other requests wait":
        "run a40*; load b40; ask c40 | 0; ask a>c |; resize 70;"
        " fails a>c MemoryExhausted c:1 needs 40 B, 30 B of 70 B are free; waits c; end a; got c",
}  # fmt: skip

TOGETHER = {
    "a lease that must not wait is on all models, or there is none":
        "load a40*+b40; lease a+b; no a+d20; leases 2; end a+b; leases 0",
    "nor is one leased beside another that leaves":
        "run a40*+b40; unload b; no a+b; end a+b; is b UNAVAILABLE",
    "models that never fit together are refused at once, also if some are there":
        "load a40; ask a+b40+c40; fails a+b+c MemoryExhausted a:1, b:1 and c:1 together need 120 B,"
        " the budget is 100 B. a budget of 120B would do$; is a READY",
    "nobody waits for what is leased with a caller":
        "run a40*+b40; ask c40; is b READY; ask a+b>d20; end a+b>d a+b; got c",
    "also where all of the room is wanted":
        "run a40*+b40; ask big100; is b READY; ask a+b>d20; end a+b>d a+b; got big",
    "nor for what was leased with a caller at once":
        "load a40*+b40; lease a+b; ask c40; is b READY; ask a+b>d20; end a+b>d a+b; got c",
    "also then where all of the room is wanted":
        "load a40*+b40; lease a+b; ask big100; is b READY; ask a+b>d20; end a+b>d a+b; got big",
    "once a lease with a caller is released, both may leave, whoever else has one":
        "load a40*+b40; lease a+b; lease b; end a+b; ask big100; is a UNAVAILABLE; is b UNLOADING;"
        " end b; got big",
    "a model that a request keeps for its run is unloaded after that run":
        "load a40; ask a+b40 | 0; unload a |; is a READY; work; got a+b; is a UNLOADING; stays a;"
        " end a+b; gone a",
    "what is leased without a caller is drained for a large model":
        "run b40+d20; ask big100; is b UNLOADING; end b+d; got big",
    "a request whose own model grew into what it waits for is refused":
        "load a40; run b40; ask b+c40 | 0; grow b 30 |;"
        " fails b+c MemoryExhausted b:1 and c:1 together need 110 B; end b; is b READY",
    "also where that model is loaded anew":
        "load a40; run b40; ask b+c40 | 0; grow b 30 |; renew b; end b;"
        " fails b+c MemoryExhausted b:1 and c:1 together need 110 B",
}  # fmt: skip

BUDGETS = {
    "idle models leave a smaller budget at once, by the policy":
        "load a20 b30 c40; resize 45; here c; books 40; budget 45;"
        " told evict a:1, 20 B freed: least recently used, to fit the budget of 45 B;"
        " told evict b:1, 30 B freed: least recently used, to fit the budget of 45 B",
    "models that fit a smaller budget to the byte stay":
        "load a20 b30 c40; resize 70; here b c",
    "a model in use leaves a smaller budget when its last run has ended":
        "run a20 a'; resize 10; end a; here a; end a'; here",
    "a load that is under way finishes first, and its request runs":
        "ask b30 | 0; resize 10; end b; here",
    "a pinned model stays, and nothing more is loaded":
        "pin a20; load a; resize 10; here a; ask b30; fails b MemoryExhausted",
    "so does one where nobody is evicted":
        "under never; load a20; resize 10; here a; ask b30; fails b MemoryExhausted",
    "a model of no bytes needs no room":
        "pin f60*; load f; resize 10; load a0; load f+c0; here f a c; resize 100; run b30;"
        " ask big40; load a/2; waits big; end b; got big",
    "what never fits any more is refused, though it is not its turn":
        "run f60*; ask big50; ask a20+c40; unload f; ask f'; resize 45 |; fails big MemoryExhausted"
        " big:1 needs 50 B, the budget is 45 B. a budget of 50B would do$;"
        " fails a+c MemoryExhausted a:1 and c:1 together need 60 B, the budget is 45 B."
        " a budget of 60B would do$; fails f' MemoryExhausted f:1 needs 60 B,"
        " the budget is 45 B; end f; gone f",
    "who was promised room that is gone is refused, and no others":
        "load a20 b30 c40; ask big50 | -1; ask a/2 | -1; ask big' |; ask b/2 | -1; abandon b/2 |;"
        " resize 45 |; fails big MemoryExhausted big:1 needs 50 B, the budget is 45 B;"
        " fails big' MemoryExhausted big:1 needs 50 B; work; end a/2; here a/2;"
        " told cancelled b:2: given up to fit the budget of 45 B",
    "a promise waits for a run whose model outgrew its claim":
        "budgets 100 100; free 1000 0; run grows20; load c40; ask big80 | -1; grow grows 15;"
        " waits big; end grows; got big",
    "also on the second device":
        "budgets 100 100; free 0 1000; run grows20; load c40; ask big80 | -1; grow grows 15;"
        " waits big; end grows; got big",
    "a promise waits for a load that may take less than it claims":
        "run grows20; pin grows; load c40; size other30; takes other 10; ask other | 0;"
        " ask big50 | -1; grow grows 15 | 1; waits big; end grows; got big",
    "a promise waits for a load elsewhere, whose request leased what outgrew its claim":
        "budgets 100 100; free 1000 0; load grows20 c40; free 0 1000; ask grows+other20 | 0;"
        " free 1000 0 |; ask big80 | -1; grow grows 15 | 1; waits big; work; end grows+other;"
        " got big",
    "a promise waits for a run whose call is being estimated":
        "run grows20*; load c40; ask big80 | -1; grow grows 15 |; ask grows>a20 | 0; waits big;"
        " work; end grows>a grows",
    "two models that were to be leased together are refused where only one fits":
        "load a20 c40; ask a+f60 | -1; resize 70 |; fails a+f MemoryExhausted a:1 and f:1 together"
        " need 80 B, the budget is 70 B. a budget of 80B would do$; work; load f; here f",
    "a request that waits for a busy function's room gets that which is new":
        "run f60*; ask big50; waits big; resize 110; got big",
    "a smaller budget makes no run wait for its own end":
        "run f60*; load b30; ask f>c40 | -1; resize 70; fails f>c MemoryExhausted",
    "each device has a budget of its own, and a model goes where it fits":
        "budgets 100 100; load a20; free 10 1000; load b30; resize 25 1; here a; load c40;"
        " on 0 a c; budget 100 25",
}  # fmt: skip

DEVICES = {
    "a model goes where most is free by the books":
        "load a40 b40 c40; on 0; on 1 a b c; load d40; on 0 d; on 1 a b c",
    "one that fits into one device only goes there, though another has more room":
        "load a40 b40 c40 big150; on 0; on 1 c big; lease big",
    "a model as large as a device's budget may go there":
        "free 1000 10; load whole100; on 0 whole",
    "the largest of a request is placed first":
        "resize 50 0; free 10 1000; load a40+large180; on 0 a; on 1 large",
    "what is loaded counts for the others of its request":
        "resize 100 1; free 1000 10; load a40 a+seventy70; on 0 a; on 1 seventy",
    "so does what is being loaded":
        "resize 100 1; free 1000 10; ask a40 | 0; ask a+seventy70; end a+seventy; on 0 a;"
        " on 1 seventy",
    "what outgrew its estimate counts as it is":
        "resize 100 1; free 1000 10; load a40; grow a 25; load a+b40; on 0 a; on 1 b",
    "what waits for its place counts for the others of a request":
        "resize 100 1; free 1000 0; run big100*; ask a40; free 0 1000; run c40; grow c 110;"
        " ask a+seventy70; waits a; end big c; end a a+seventy; on 0 a; on 1 seventy",
    "models that are asked for at once are spread":
        "ask a40 |; ask b40 |; ask c40 |; ask d40; got a b c d; on 0 d; on 1 a b c",
    "a model goes where it needs none of the room that an earlier one waits for":
        "resize 100 1; run f80* g90*; on 0 f; on 1 g; ask large60; waits large; load small15;"
        " on 0 f small; end f; end large",
    "what other programs took of a device is no room, unless nobody says":
        "free 90 50; load a40; on 0 a; free ? 50; load b40; on 0 a b",
    "who asks for a model that is loaded, or asked for, gets that one":
        "free 1000 10; ask a40 | 0; free 10 1000 |; ask a'; got a a'; on 0 a; on 1; lease a''",
    "a model that was unloaded is placed anew":
        "free 1000 10; load a40; unload a; gone a; is a UNAVAILABLE; absent a unloaded by hand;"
        " free 10 1000; load a; on 0; on 1 a",
    "a load is given up on the device where it is":
        "free 10 1000; hand a40 | 0; abandon a; on 1",
    "a load that failed a moment ago is not tried elsewhere":
        "free 10 1000; breaks a LoadFailed; ask a40; fails a LoadFailed scripted; free 1000 10;"
        " mends a; ask a; fails a LoadFailed scripted; wait 100; load a; on 0 a",
    "a model larger than every budget is refused":
        "ask huge300; fails huge MemoryExhausted",
    "models of several devices are leased as one":
        "resize 100 1; run a40+b40+c40; on 0 a c; on 1 b; end a+b+c |; lease a+b+c; no a+b+d20;"
        " leases 3; end a+b+c |; leases 0",
    "what fails on one device is given back on the other":
        "resize 100 1; breaks b LoadFailed; ask a40+b40; fails a+b LoadFailed scripted; leases 0",
    "a model that waits with others for a device has its place":
        "resize 100 1; load d20; ask a40+b40 |; ask b; got b a+b; on 0 b d; on 1 a; end a+b b;"
        " leases 0; unload b; here a d",
    "a request whose model grew is refused, whoever is idle elsewhere":
        "resize 100 1; free 1000 10; load d20; free 10 1000; load a40 b40; ask b+c40 | 0;"
        " grow b 30; fails b+c MemoryExhausted b:1 and c:1 together need 110 B; on 0 d; on 1 b",
    "and whoever is in use elsewhere":
        "resize 100 1; free 1000 10; run d20; free 10 1000; load a40 b40; ask b+c40 | 0;"
        " grow b 30; fails b+c MemoryExhausted b:1 and c:1 together need 110 B; on 0 d; on 1 b",
    "a request holds nothing of one device while it waits for another":
        "resize 100 1; free 10 1000; run f80*; free 1000 10; load a80; free 10 1000; ask a+b80;"
        " waits a+b; free 1000 10; load f>c80; end f; got a+b",
    "the room of one device is kept while another is waited for":
        "resize 100 1; free 10 1000; run f80*; free 1000 10; ask b80+c80; ask a80; waits a;"
        " end f; end b+c; got a",
    "a call waits for a run whose own call loads":
        "resize 100 1; free 1000 10; run f80*; free 10 1000; run g10*; ask f>a80 |;"
        " free 10 1000 | 0; ask g>b80 |; free 1000 10 | 1; waits g>b; work; end f>a f; got g>b",
    "of two runs that each call for the other's device, the second is refused":
        "resize 100 1; free 1000 10; run f80*; free 10 1000; run g80*; ask f>a80; waits f>a;"
        " free 1000 10; ask g>b80; fails g>b MemoryExhausted .*80 B may not be evicted; end g;"
        " end f>a f",
    "a call goes before a request that waits for its caller, also on another device":
        "resize 100 1; free 1000 10; load a80; free 10 1000; run f80*; unload f; ask a+b80;"
        " waits a+b; free 1000 10; load f>c80; end f; gone f; got a+b",
}  # fmt: skip

SCENES = LOADS | UNLOADS | GROWTH | TURNS | CALLS | TOGETHER | BUDGETS


@pytest.mark.parametrize("script", SCENES.values(), ids=SCENES)
def test_one_device(script: str) -> None:
    """Each rule of one device, by the steps that show it."""
    Scene(script)


@pytest.mark.parametrize("script", DEVICES.values(), ids=DEVICES)
def test_two_devices(script: str) -> None:
    """Each rule of devices of 100 and of 200 bytes, by the steps that show it."""
    Scene(f"budgets 100 200; {script}")
