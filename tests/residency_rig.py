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
    The words are in ``DOES``, what happens, and in ``SEES``, what is seen then.
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
        if verb in SEES:
            assert SEES[verb](self, *words)
            return
        DOES[verb](self, *words)
        if not bar:
            self.jobs.run_all()
        for job in jobs.split():
            self.jobs.run_one(int(job))

    def model(self, word: str) -> ModelId:
        found = re.fullmatch(r"([a-z]+)(\d*)(\*?)(?:/(\d))?'*", word)
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

    def ask(self, word: str, purpose: Purpose = Purpose.RUN) -> None:
        name, models, parents = self.request(word)
        self.asked[name] = self.residency.acquire(*models, parents=parents, purpose=purpose)

    def run(self, *words: str) -> None:
        for word in words:
            self.ask(word)
            self.jobs.run_all()
            assert self.has(word)

    def load_each(self, *words: str) -> None:
        for word in words:
            self.run(word)
            self.give_back(self.asked.pop(self.request(word)[0]).result(0))

    def lease_now(self, word: str) -> None:
        name, models, _ = self.request(word)
        self.asked[name] = Future()
        self.asked[name].set_result(self.lease(*models))

    def end(self, *words: str) -> None:
        for word in words:
            self.asked.pop(word).result(0).release()

    def fail(self, word: str, error: str = "") -> None:
        for loader in self.loaders:
            loader.failures.pop(word, None)
            if error:
                kind = getattr(errors, error, ZeroDivisionError)
                loader.failures[word] = kind("scripted")

    def has(self, *words: str) -> bool:
        requests = [self.request(word) for word in words]
        return all(
            set(self.asked[name].result(0).sessions) == set(models) for name, models, _ in requests
        )

    def refused(self, word: str, *text: str) -> bool:
        error = self.asked.pop(word).exception(0)
        told = f"{type(error).__name__} {error}"
        assert re.search(f"^{' '.join(text)}", told), told
        return True

    def why(self, word: str) -> str:
        absence = self.residency.absence(self.model(word))
        return f"{'broken ' * absence.failed}{absence.reason}" if absence else ""

    def books(self) -> list[int]:
        return [self.device.held_nbytes, self.device.claimed_nbytes]

    def events(self, kind: str) -> list[str]:
        return [str(each.event) for each in self.log.since() if each.event.kind == kind]

    def now_or_none(self, word: str) -> Lease | None:
        return self.residency.lease_now(*self.request(word)[1])


DOES: dict[str, Callable[..., object]] = {
    "ask": Scene.ask,
    "hand": lambda s, word: s.ask(word, Purpose.LOAD),  # load it by hand
    "ahead": lambda s, word: s.ask(word, Purpose.PRELOAD),  # of its use, where nobody must leave
    "run": Scene.run,  # ask for each, and get it
    "load": Scene.load_each,  # run each, which ends
    "lease": Scene.lease_now,  # at once, what is loaded
    "end": Scene.end,
    "abandon": lambda s, word: abandon(s.asked[word]),
    "unload": lambda s, *words: s.unloads.update(
        {word: s.residency.unload(s.model(word)) for word in words}
    ),
    "pin": lambda s, word: s.residency.pin(s.model(word)),
    "unpin": lambda s, word: s.residency.pin(s.model(word), pinned=False),
    "renew": lambda s, word: s.residency.renew(s.model(word)),
    "grow": lambda s, word, nbytes: s.residency.grow(s.model(word), int(nbytes)),
    "resize": lambda s, nbytes, device="0": s.residency.resize(int(nbytes), int(device)),
    # so much is free on each device, by the system
    "free": lambda s, *nbytes: s.system.__setitem__(
        slice(None), [None if each == "?" else int(each) for each in nbytes]
    ),
    "wait": lambda s, seconds: setattr(s, "now_s", s.now_s + float(seconds)),
    "size": Scene.models,  # files change
    # what it takes once loaded is less than it claims
    "takes": lambda s, word, nbytes: s.loader.footprints.update(
        {word: Footprint(other_nbytes=int(nbytes))}
    ),
    "breaks": Scene.fail,
    "mends": Scene.fail,
    "work": lambda s: None,  # all that is to be done is done
}
SEES: dict[str, Callable[..., bool]] = {
    "loaded": lambda s, *words: s.loaded() == s.models(*words),
    "here": lambda s, *words: s.here() == s.models(*words),  # loaded, coming or going
    "on": lambda s, device, *words: s.on(int(device)) == s.models(*words),
    "got": Scene.has,
    "waits": lambda s, *words: not any(s.asked[s.request(word)[0]].done() for word in words),
    "cancelled": lambda s, *words: all(s.asked[word].cancelled() for word in words),
    "fails": Scene.refused,
    "no": lambda s, word: s.now_or_none(word) is None,  # lease on all of them at once
    "gone": lambda s, *words: all(s.unloads[word].result(0) is None for word in words),
    "stays": lambda s, word: not s.unloads[word].done(),
    "is": lambda s, word, state: s.state(s.model(word)) is ModelState[state],
    # what is held, and claimed if that is another
    "books": lambda s, held, claimed="": s.books() == [int(held), int(claimed or held)],
    "budget": lambda s, *nbytes: (
        [str(s.residency.books(n).budget_nbytes) for n in range(len(s.loaders))] == [*nbytes]
    ),
    "passed": lambda s, *words: {each.id for each in s.device.passed} == s.models(*words),
    "pending": lambda s, word, count: s.residency.snapshot().pending == {s.model(word): int(count)},
    "leases": lambda s, count: s.leases() == int(count),
    "loads": lambda s, *words: s.loader.loads == [s.model(word) for word in words],  # in this order
    "told": lambda s, kind, *text: " ".join(text) in s.events(kind),
    "absent": lambda s, word, *why: s.why(word) == " ".join(why),
    # models are kept for so long, and looked at again in so many seconds
    "expire": lambda s, keep_s, next_s: s.residency.expire(float(keep_s)) == float(next_s),
    # a run needs memory, for which so many are leaving
    "room": lambda s, word, nbytes, leaving: (
        len(s.residency.make_room(s.model(word), int(nbytes))) == int(leaving)
    ),
}
