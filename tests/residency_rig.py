"""A residency with its parts at hand: loading threads that work when told, and a clock."""

import re
from collections.abc import Callable
from concurrent.futures import Future

from doubles import FakeLoader, Jobs, threaded
from workbench import errors
from workbench.events import EventLog
from workbench.memory.eviction import POLICIES
from workbench.model import Footprint, ModelId, ModelState
from workbench.residency import Lease, OnDevice, Purpose, Residency, Telemetry, abandon


class Rig:
    """One device for each of *loaders*, with a budget of 100 unless *budgets* say otherwise."""

    def __init__(
        self, *loaders: FakeLoader, budgets: tuple[int, ...] = (), policy: str = "lru"
    ) -> None:
        self.jobs = Jobs()
        self.log = EventLog(clock=lambda: 0.0)
        self.now_s = 0.0
        self.loaders = loaders
        self.loader = loaders[0]
        self.system: list[int | None] = [1000] * len(loaders)  # what is free by the system
        works = [threaded(each, self.jobs.submit, clock=self._clock) for each in loaders]
        devices = zip(budgets or (100,) * len(loaders), works, strict=True)
        self.residency = Residency(
            [OnDevice(*device, self._available(n)) for n, device in enumerate(devices)],
            POLICIES[policy],
            Telemetry(self.log),
            clock=self._clock,
        )
        self.device = self.residency._machine.residents.devices[0]

    def _clock(self) -> float:
        return self.now_s

    def _available(self, number: int) -> Callable[[], int | None]:
        return lambda: self.system[number]

    def acquire(
        self, *models: ModelId, parents: tuple[ModelId, ...] = (), purpose: Purpose = Purpose.RUN
    ) -> Future[Lease]:
        future = self.residency.acquire(*models, parents=parents, purpose=purpose)
        self.jobs.run_all()
        return future

    def lease(self, *models: ModelId) -> Lease:
        """A lease on *models*, which are loaded."""
        lease = self.residency.lease_now(*models)
        assert lease is not None
        return lease

    def give_back(self, *leases: Lease) -> None:
        for lease in leases:
            lease.release()
        self.jobs.run_all()

    def load(self, *models: ModelId) -> None:
        for model in models:
            self.give_back(self.acquire(model).result(0))

    def resize(self, budget_nbytes: int, device: int = 0) -> None:
        self.residency.resize(budget_nbytes, device)
        self.jobs.run_all()

    def state(self, model: ModelId) -> ModelState:
        return self.residency.state(model)

    def here(self) -> set[ModelId]:
        return set(self.residency.snapshot().residents)

    def loaded(self) -> set[ModelId]:
        return {model for model in self.here() if self.state(model) is ModelState.READY}

    def on(self, number: int) -> set[ModelId]:
        """The models of that device."""
        return {model for model in self.here() if self.residency.device(model) == number}

    def leases(self) -> int:
        return sum(each.leases for each in self.residency.snapshot().residents.values())

    def told(self, kind: type = object) -> list[object]:
        """The events of that *kind*."""
        return [entry.event for entry in self.log.since() if isinstance(entry.event, kind)]


class Scene(Rig):
    """A rig that plays steps in words, as ``run a40; ask b100; waits b; end a; got b``.

    A model is a name, with its size where it is first named (or changes), and ``*`` if its runs may
    call others: ``f60*``. A request is for models, ``a+b``, and may come from a run: ``f>a``;
    ``a'`` is another one for the same. Steps end with all work done, but those with a bar: then
    jobs of the loading thread are done by number, in ``ask a | 0 1`` two and in ``ask a |`` none.
    """

    def __init__(self, script: str) -> None:
        head = re.match(r"(?:budgets ([\d ]+);)?\s*(?:under (\w+);)?\s*", script)
        assert head is not None
        budgets = tuple(map(int, (head[1] or "100").split()))
        loaders = [FakeLoader({}) for _ in budgets]
        super().__init__(*loaders, budgets=budgets, policy=head[2] or "lru")
        self.asked: dict[str, Future[Lease]] = {}
        self.unloads: dict[str, Future[None]] = {}
        for step in re.split(r";\s+", script[head.end() :].strip()):
            try:
                self.step(step)
            except BaseException as error:
                error.add_note(f"in the step: {step}")
                raise

    def step(self, step: str) -> None:
        act, bar, jobs = step.partition("|")
        verb, *words = act.split()
        if hasattr(self, f"see_{verb}"):
            getattr(self, f"see_{verb}")(*words)
            return
        getattr(self, f"do_{verb}")(*words)
        if not bar:
            self.jobs.run_all()
        for job in jobs.split():
            self.jobs.run_one(int(job))

    def model(self, word: str) -> ModelId:
        found = re.fullmatch(r"([a-z]+)(\d*)(\*?)(?:/(\d))?", word)
        assert found is not None, word
        name, size, calls, version = found.groups()
        for loader in self.loaders:
            loader.sizes |= {name: int(size)} if size else {}
            loader.callers |= {name} if calls else set()
        return ModelId(name, int(version or 1))

    def models(self, *words: str) -> set[ModelId]:
        return {self.model(word) for word in words}

    def request(self, word: str) -> tuple[str, list[ModelId], tuple[ModelId, ...]]:
        """Its name, and its models and parents."""
        parents, _, models = word.rstrip("'").rpartition(">")
        name = re.sub(r"(?<=[a-z])\d+|\*", "", word)
        calling = tuple(map(self.model, parents.split("+"))) if parents else ()
        return name, [self.model(each) for each in models.split("+")], calling

    # ── what happens ──

    def do_ask(self, word: str, purpose: Purpose = Purpose.RUN) -> None:
        name, models, parents = self.request(word)
        self.asked[name] = self.residency.acquire(*models, parents=parents, purpose=purpose)

    def do_hand(self, word: str) -> None:
        """Load it by hand."""
        self.do_ask(word, Purpose.LOAD)

    def do_ahead(self, word: str) -> None:
        """Load it ahead of its use, where nobody must leave."""
        self.do_ask(word, Purpose.PRELOAD)

    def do_run(self, *words: str) -> None:
        """Ask for each, and get it."""
        for word in words:
            self.do_ask(word)
            self.jobs.run_all()
            self.see_got(word)

    def do_load(self, *words: str) -> None:
        """Run each, which ends."""
        for word in words:
            self.do_run(word)
            self.give_back(self.asked.pop(self.request(word)[0]).result(0))

    def do_lease(self, word: str) -> None:
        """Lease at once what is loaded."""
        name, models, _ = self.request(word)
        self.asked[name] = Future()
        self.asked[name].set_result(self.lease(*models))

    def do_end(self, *words: str) -> None:
        for word in words:
            self.asked.pop(word).result(0).release()

    def do_abandon(self, word: str) -> None:
        abandon(self.asked[word])

    def do_unload(self, *words: str) -> None:
        for word in words:
            self.unloads[word] = self.residency.unload(self.model(word.rstrip("'")))

    def do_pin(self, word: str) -> None:
        self.residency.pin(self.model(word))

    def do_unpin(self, word: str) -> None:
        self.residency.pin(self.model(word), pinned=False)

    def do_renew(self, word: str) -> None:
        self.residency.renew(self.model(word))

    def do_grow(self, word: str, nbytes: str) -> None:
        self.residency.grow(self.model(word), int(nbytes))

    def do_resize(self, nbytes: str, device: str = "0") -> None:
        self.residency.resize(int(nbytes), int(device))

    def do_room(self, word: str, nbytes: str, leaving: str = "0") -> None:
        """A run needs memory, for which so many are *leaving*."""
        assert len(self.residency.make_room(self.model(word), int(nbytes))) == int(leaving)

    def do_work(self) -> None:
        """All that is to be done is done."""

    def do_free(self, *nbytes: str) -> None:
        """So much is free on each device, by the system."""
        self.system = [None if each == "?" else int(each) for each in nbytes]

    def do_wait(self, seconds: str) -> None:
        self.now_s += float(seconds)

    def do_expire(self, keep_alive_s: str, next_s: str) -> None:
        assert self.residency.expire(float(keep_alive_s)) == float(next_s)

    def do_size(self, *words: str) -> None:
        """Files change."""
        self.models(*words)

    def do_takes(self, word: str, nbytes: str) -> None:
        """What it takes once loaded is less than it claims."""
        self.loader.footprints[word] = Footprint(other_nbytes=int(nbytes))

    def do_breaks(self, word: str, error: str) -> None:
        for loader in self.loaders:
            loader.failures[word] = getattr(errors, error, ZeroDivisionError)("scripted")

    def do_mends(self, word: str) -> None:
        for loader in self.loaders:
            del loader.failures[word]

    # ── what follows ──

    def see_loaded(self, *words: str) -> None:
        assert self.loaded() == self.models(*words)

    def see_here(self, *words: str) -> None:
        """They are loaded, come or go."""
        assert self.here() == self.models(*words)

    def see_on(self, device: str, *words: str) -> None:
        assert self.on(int(device)) == self.models(*words)

    def see_got(self, *words: str) -> None:
        for word in words:
            name, models, _ = self.request(word)
            assert set(self.asked[name].result(0).sessions) == set(models)

    def see_waits(self, *words: str) -> None:
        for word in words:
            assert not self.asked[self.request(word)[0]].done()

    def see_cancelled(self, *words: str) -> None:
        assert all(self.asked[word].cancelled() for word in words)

    def see_gone(self, *words: str) -> None:
        """They were unloaded."""
        for word in words:
            assert self.unloads[word].result(0) is None

    def see_stays(self, word: str) -> None:
        """Its unload is not done."""
        assert not self.unloads[word].done()

    def see_fails(self, word: str, *text: str) -> None:
        error = self.asked.pop(word).exception(0)
        told = f"{type(error).__name__} {error}"
        assert re.search(f"^{' '.join(text)}", told), told

    def see_is(self, word: str, state: str) -> None:
        assert self.state(self.model(word)) is ModelState[state]

    def see_books(self, held: str, claimed: str = "") -> None:
        assert self.device.held_nbytes == int(held)
        assert self.device.claimed_nbytes == int(claimed or held)

    def see_budget(self, *nbytes: str) -> None:
        budgets = [self.residency.books(n).budget_nbytes for n in range(len(self.loaders))]
        assert budgets == [int(each) for each in nbytes]

    def see_passed(self, *words: str) -> None:
        """Their requests went before others."""
        assert {each.id for each in self.device.passed} == self.models(*words)

    def see_pending(self, word: str, count: str) -> None:
        assert self.residency.snapshot().pending == {self.model(word): int(count)}

    def see_no(self, word: str) -> None:
        """There is no lease on all of them at once."""
        assert self.residency.lease_now(*self.request(word)[1]) is None

    def see_leases(self, count: str) -> None:
        assert self.leases() == int(count)

    def see_loads(self, *words: str) -> None:
        """These were begun, in this order."""
        assert self.loader.loads == [self.model(word) for word in words]

    def see_told(self, kind: str, *text: str) -> None:
        told = [str(each.event) for each in self.log.since() if each.event.kind == kind]
        assert " ".join(text) in told

    def see_untold(self, kind: str) -> None:
        assert all(each.event.kind != kind for each in self.log.since())

    def see_absent(self, word: str, *why: str) -> None:
        absence = self.residency.absence(self.model(word))
        assert (absence.reason if absence else "") == " ".join(why)
