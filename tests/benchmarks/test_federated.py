"""What the benchmark of federated rounds computes by itself, against known answers, and a run of it in small."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from federated import contestants, measuring, training
from federated.aims import Compared, verdicts
from federated.attacks import ATTACKS, LABEL_FLIP, Memory, poison_labels, poison_updates
from federated.checks import Case, cases, check
from federated.fetch import parse_idx, pool
from federated.images import CLASSES, PIXELS, ClientImages, Images, split
from federated.models import MODELS, Model, local_updates
from federated.page_text import write_page
from federated.plots import draw_all
from federated.results import Measured, Results, read, write
from federated.rules import (
    BrokenRuleError,
    Budget,
    CenteredClipping,
    FlowerAdaptive,
    FlowerFixed,
    GeometricMedian,
    make_rule,
)
from federated.training import Rate, Setting, train
from federated.wages import Years

RNG = np.random.default_rng(7)
SETTING = Setting(images="MNIST", model="softmax", split="iid", hostile=0.2)


def easy_images(train_images: int = 1_200, test_images: int = 200) -> Images:
    """Ten far corners with some noise: learned in a few rounds."""
    generator = np.random.default_rng(3)
    corners = generator.normal(0.0, 1.0, (CLASSES, PIXELS))

    def some(count: int) -> tuple[Any, Any]:
        labels = generator.integers(0, CLASSES, count)
        noise = generator.normal(0.0, 0.5, (count, PIXELS))
        return (corners[labels] + noise).astype(np.float32), labels

    (inside, labels), (outside, others) = some(train_images), some(test_images)
    return Images(train=inside, train_labels=labels, test=outside, test_labels=others)


@pytest.fixture
def easy(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    made = easy_images()
    monkeypatch.setattr(training, "load", lambda name: made)
    training.deal.cache_clear()
    yield
    training.deal.cache_clear()


# --- images ---------------------------------------------------------------------------------------------------------


def test_idx_files_are_read_and_pooled_by_hand() -> None:
    image = np.zeros((28, 28), np.uint8)
    image[0, 0], image[0, 1] = 255, 51
    header = b"\0\0\x08\x03" + b"".join(size.to_bytes(4, "big") for size in (1, 28, 28))
    (pooled,) = pool(parse_idx(header + image.tobytes()))
    assert pooled[0] == pytest.approx((1.0 + 0.2) / 4)
    assert not pooled[1:].any()


def test_shards_give_clients_few_labels_and_every_image_once() -> None:
    images = easy_images()
    by_kind = {
        kind: split(images, kind, np.random.default_rng(1), clients=40) for kind in ("iid", "two-shard")
    }
    for dealt in by_kind.values():
        assert np.array_equal(np.sort(dealt.images.sum(axis=2).ravel()), np.sort(images.train.sum(axis=1)))
    labels = {kind: np.mean([len(set(row)) for row in dealt.labels]) for kind, dealt in by_kind.items()}
    assert labels["iid"] > 8
    assert labels["two-shard"] < 4


# --- models ---------------------------------------------------------------------------------------------------------


def cross_entropy(model: Model, weights: Any, images: Any, labels: Any) -> float:
    """From the definition, without any code of the model's gradients."""
    if model.size == (PIXELS + 1) * CLASSES:
        logits = images @ weights[: PIXELS * CLASSES].reshape(CLASSES, PIXELS).T + weights[PIXELS * CLASSES :]
    else:
        hidden = 32
        first, bias, second, last = np.split(weights, np.cumsum([PIXELS * hidden, hidden, hidden * CLASSES]))
        units = np.tanh(images @ first.reshape(hidden, PIXELS).T + bias)
        logits = units @ second.reshape(CLASSES, hidden).T + last
    return float(np.mean(np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(len(labels)), labels]))


def gradients(model: Model, rows: Any, images: Any, labels: Any) -> Any:
    found = np.full_like(rows, np.nan)
    model.write_gradients(rows, images, labels, found)
    return found


@pytest.mark.parametrize("name", list(MODELS))
def test_gradients_are_slopes_of_the_cross_entropy(name: str) -> None:
    model = MODELS[name]
    images = RNG.normal(0.0, 0.5, (1, 8, PIXELS)).astype(np.float32)
    labels = RNG.integers(0, CLASSES, (1, 8))
    weights = model.start(RNG) + RNG.normal(0.0, 0.05, model.size)
    (found,) = gradients(model, weights.astype(np.float32)[None, :], images, labels)
    for place in RNG.integers(0, model.size, 12):
        nudge = np.zeros(model.size)
        nudge[place] = 1e-4
        up, down = (
            cross_entropy(model, weights + sign * nudge, images[0].astype(float), labels[0])
            for sign in (1, -1)
        )
        assert found[place] == pytest.approx((up - down) / 2e-4, abs=1e-4)


def test_a_client_trains_on_its_own_images_step_by_step() -> None:
    model = MODELS["softmax"]
    dealt = split(easy_images(), "iid", np.random.default_rng(1), clients=3)
    together = local_updates(model, model.start(RNG), dealt, steps=4, learning_rate=0.3)
    for client in range(3):
        rows = np.zeros((1, model.size), np.float32)
        for part in np.split(np.arange(400), 4):
            rows = rows - 0.3 * gradients(
                model, rows, dealt.images[client, part][None], dealt.labels[client, part][None]
            )
        assert together[client] == pytest.approx(rows[0], abs=1e-5)


# --- attacks --------------------------------------------------------------------------------------------------------


def test_min_max_goes_as_far_as_honest_updates_are_apart() -> None:
    updates = RNG.normal(0.3, 1.0, (30, 5)).astype(np.float32)
    hostile = np.arange(30) < 6
    poison_updates(updates, hostile, "min-max", Memory())
    honest, sent = updates[~hostile], updates[0]
    apart = max(np.linalg.norm(a - b) for a in honest for b in honest)
    assert max(np.linalg.norm(sent - row) for row in honest) == pytest.approx(apart, rel=1e-4)
    assert sent @ honest.mean(axis=0) < 0.0


@pytest.mark.parametrize("attack", ["first direction", "fixed direction"])
def test_attacks_that_remember_push_the_same_way_in_every_round(attack: str) -> None:
    hostile, memory, sent = np.arange(10) < 3, Memory(), []
    first = None
    for _ in range(3):
        updates = RNG.normal(0.3, 1.0, (10, 5)).astype(np.float32)
        first = updates[3:].mean(axis=0) if first is None else first
        poison_updates(updates, hostile, attack, memory)
        sent.append(updates[0] / np.linalg.norm(updates[0]))
    assert sent[1] == pytest.approx(sent[0], abs=1e-5)
    assert sent[2] == pytest.approx(sent[0], abs=1e-5)
    if attack == "first direction":
        assert sent[0] == pytest.approx(-first / np.linalg.norm(first), abs=1e-5)


@pytest.mark.parametrize("attack", ATTACKS)
def test_attacks_touch_hostile_clients_alone(attack: str) -> None:
    dealt = ClientImages(images=np.zeros((10, 2, PIXELS), np.float32), labels=RNG.integers(0, 10, (10, 2)))
    updates = RNG.normal(0.3, 1.0, (10, 5)).astype(np.float32)
    before, hostile = updates.copy(), np.arange(10) < 3
    labels = poison_labels(dealt, hostile, attack).labels
    poison_updates(updates, hostile, attack, Memory())
    assert np.array_equal(updates[3:], before[3:])
    assert np.array_equal(labels[3:], dealt.labels[3:])
    changed = labels[:3] if attack == LABEL_FLIP else updates[:3]
    assert not np.array_equal(changed, dealt.labels[:3] if attack == LABEL_FLIP else before[:3])


# --- rules ----------------------------------------------------------------------------------------------------------


def test_the_adaptive_clip_of_flower_moves_away_from_the_quantile_and_the_corrected_one_toward_it() -> None:
    updates, claimed = np.ones((20, 4)) / 2.0, np.full(20, 60.0)  # of length 1
    clips = {}
    for corrected in (False, True):
        rule = FlowerAdaptive(0.0, 20, 1, clip=0.1, corrected=corrected)
        for _ in range(30):
            rule.aggregate(updates, claimed)
        clips[corrected] = rule.clip
    assert clips[False] < 0.006
    assert 0.8 < clips[True] < 1.25


def test_what_breaks_a_rule_that_trusts_replies() -> None:
    updates, claimed = RNG.normal(0.0, 1.0, (20, 4)), np.full(20, 60.0)
    zero = updates.copy()
    zero[3] = 0.0
    with pytest.raises(BrokenRuleError):
        FlowerFixed(0.0, 20, 1, clip=1.0).aggregate(zero, claimed)
    claimed[0] = 1e9
    found = FlowerFixed(0.0, 20, 1, clip=1.0).aggregate(updates, claimed)
    assert found == pytest.approx(updates[0] / max(np.linalg.norm(updates[0]), 1.0), rel=1e-5)


@pytest.mark.parametrize(
    "rule",
    [GeometricMedian(smoothing=0.01, steps=30), CenteredClipping(clip=0.3, steps=60)],
    ids=["median", "clip"],
)
def test_robust_rules_stay_with_the_many(rule: Any) -> None:
    updates = RNG.normal(1.0, 0.1, (50, 6))
    updates[:10] = -100.0
    assert np.linalg.norm(rule.aggregate(updates, np.ones(50)) - 1.0) < 0.6


def there(case: Case) -> Any:
    reason = f"make federated makes the environment of {case.package}"
    return pytest.param(case, id=case.rule, marks=pytest.mark.skipif(not case.python.exists(), reason=reason))


@pytest.mark.slow  # imports PyTorch
@pytest.mark.parametrize("case", [there(case) for case in cases()])
def test_rules_written_down_here_do_what_their_packages_do(case: Case) -> None:
    assert check(case).difference < 1e-9


# --- training -------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("easy")
def test_a_hostile_reply_ends_other_rules_and_not_a_private_average() -> None:
    budget = Budget(epsilon=1e4, rounds=8)
    private, fixed = (
        Rate(kind="hubermean", step=2.0),
        Rate(kind="flower-fixed", step=2.0, options={"clip": 1.0}),
    )
    for attack in ("NaN", "zero", "false weights"):
        assert train(SETTING, private, attack, 1, budget, clients=40).final > 0.8
        assert train(SETTING, fixed, attack, 1, budget, clients=40).final < 0.3
    quiet = train(SETTING, private, "none", 1, budget, clients=40)
    assert quiet == train(SETTING, private, "none", 1, budget, clients=40)
    assert len(quiet.accuracy) == 8


def test_everybody_has_as_many_ways_to_choose_from() -> None:
    for contestant in contestants.CONTESTANTS[2:]:
        assert len({str(rate) for rate in contestant.rates}) == contestants.CHOICES
        for rate in contestant.rates:
            make_rule(rate.kind, rate.options, Budget(), 100, 1)
    assert not set(measuring.TUNING_SEEDS) & set(measuring.JUDGING_SEEDS)


class InTurn:
    """An executor in this process."""

    def map(self, function: Callable[[Any], Any], jobs: Iterable[Any]) -> Iterable[Any]:
        return [function(job) for job in jobs]


@pytest.mark.usefixtures("easy")
def test_tuning_judging_and_the_page_in_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = [
        contestants.Contestant(name=one.name, what="", private=one.private, rates=one.rates[:2])
        for one in contestants.CONTESTANTS
        if one.name
        in (contestants.DEFAULT, "hubermean, small clip", "hubermean, Huber center", "Flower, fixed clip")
    ]

    def short(*case: Any, every_round: bool = True) -> training.Run:
        return train(*case, Budget(rounds=2), clients=40, every_round=every_round)

    monkeypatch.setattr(measuring, "train", short)
    monkeypatch.setattr(measuring, "JUDGING_SEEDS", (11, 12))
    results = Results()
    for share in (0.0, 0.2):
        setting = Setting(images="MNIST", model="softmax", split="iid", hostile=share)
        tuned = measuring.tune(setting, InTurn(), small)  # type: ignore[arg-type]
        results.replace(tuned, measuring.judge(tuned, InTurn()))  # type: ignore[arg-type]
    write(tmp_path / "results.json", results)
    again = read(tmp_path / "results.json")
    assert again == results
    write_page(tmp_path / "page.md", again)
    draw_all(tmp_path, again)
    page = (tmp_path / "page.md").read_text()
    assert "Not measured yet" in page
    assert "| hubermean, small clip |" in page
    assert [one.word for one in verdicts(results)]


def test_a_difference_within_its_error_is_a_tie() -> None:
    def row(*finals: float) -> Measured:
        return Measured(
            setting=SETTING, contestant="", attack="none", finals=list(finals), rounds=[0.0], broken=""
        )

    assert Compared.of(row(0.90, 0.91, 0.92), row(0.88, 0.89, 0.90)).word == "ahead"
    assert Compared.of(row(0.88, 0.89, 0.90), row(0.90, 0.91, 0.92)).word == "behind"
    assert Compared.of(row(0.90, 0.86, 0.92), row(0.88, 0.91, 0.88)).word == "ties"


def test_a_person_counts_once_however_many_years_she_has() -> None:
    years = Years(
        person=np.array([0, 0, 0, 1]),
        variables=np.ones((4, 1)),
        log_wage=np.array([1.0, 1.0, 1.0, 3.0]),
    )
    assert years.least_squares() == pytest.approx([2.0])
    assert years.updates(np.array([2.0])).ravel() == pytest.approx([-1.0, 1.0])
    assert years.of(np.array([False, True])).persons == 1
