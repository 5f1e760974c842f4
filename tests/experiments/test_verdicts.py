"""Which claims hold: statistical tests, and verdicts written by a person."""

import dataclasses
import math
import random
from pathlib import Path

import pytest
import yaml
from scipy import stats
from written_runs import write_runs

from remanence.experiments import find
from remanence.experiments.claim_tests import KNOWN, OF_DATA, Evidence, models_of, number_at, positive, rank_test
from remanence.experiments.judgements import judgements
from remanence.experiments.registry import every
from remanence.experiments.results import UNFINISHED, Outcome
from remanence.experiments.sections import gather
from remanence.experiments.verdicts import decide, decide_part, parts_of_claims

ROOT = Path(__file__).parents[2]
CLEAR, CLOSE = [0.91, 0.90, 0.905], [0.80, 0.99, 0.91]


def runs(scores=(), updates=(), length=1000, failed=False):
    scores = list(scores) or [0.9] * len(updates)
    updates = list(updates) or [None] * len(scores)
    return [
        Outcome(seed, "finished", length, score, reached, failed)
        for seed, (score, reached) in enumerate(zip(scores, updates, strict=True), 1)
    ]


def verdict(part, id="plstm/pmnist-256", preset="short", changed="", data=None, **found):
    evidence = Evidence(find(id, preset), found, changed, data=data or {})
    return decide_part({"claim": "It is so.", **part}, evidence).verdict


BEST = {"best": "plstm", "of": ["lstm"]}
FEWEST = {"fewest": "plstm", "of": ["lstm"]}
COPY = "plstm/copy-200"


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        (CLEAR, [0.80, 0.81, 0.805], "holds"),
        ([0.80, 0.81, 0.805], CLEAR, "does not hold"),
        (CLEAR, CLOSE, "open"),
        (CLEAR, [0.80], "open"),
        ([0.91], [0.80, 0.81, 0.805], "open"),
        (CLEAR, [], "not tested here"),
    ],
)
def test_a_better_mean(ours, theirs, expected):
    assert verdict(BEST, plstm=runs(ours), lstm=runs(theirs)) == expected


def test_where_low_scores_are_better_the_lower_mean_is_better():
    low, high = runs([1.40, 1.41, 1.405]), runs([1.50, 1.51, 1.505])
    assert verdict(BEST, "plstm/charptb-150", plstm=low, lstm=high) == "holds"
    assert verdict(BEST, "plstm/charptb-150", plstm=high, lstm=low) == "does not hold"


def test_several_comparisons_share_the_risk_of_an_error():
    one, two = runs([0.90, 0.91, 0.92]), runs([0.8745, 0.8845, 0.8945])  # p is about 0.035
    single = Evidence(find("plstm/imdb"), {"plstm": one, "lstm": two, "lstm-chrono": two})
    assert decide_part({"claim": "", "best": "plstm", "of": ["lstm"]}, single).verdict == "holds"
    assert decide_part({"claim": "", "best": "plstm", "of": ["lstm", "lstm-chrono"]}, single).verdict == "open"


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ([100, 110, 120], [900, 910, 950], "holds"),
        ([900, 910, 950], [100, 110, 120], "does not hold"),
        ([100, 500, 900], [110, 510, 990], "open"),
        ([100, 110, 120], [None, None, 950], "open"),  # three against three: p is at least 0.1
        ([100, 110, 120, 130], [None, None, 950, 990], "holds"),
        ([None, None, None, None], [100, 200, 300, 400], "does not hold"),
        ([100, 110, None], [None, None, None], "open"),
        ([None] * 3, [None] * 3, "open"),
        ([100, 110], [None, None], "open"),
        ([100, 110, 120, 130, 150], [140, 160, None, None, None], "holds"),  # 24 of 25 pairs: p is 4 / 252
        ([140, 160, None, None, None], [100, 110, 120, 130, 150], "does not hold"),
        ([100, 110, 120, 130, 180], [140, 160, 170, None, None], "open"),  # 22 of 25: p is 0.056
    ],
)
def test_fewer_updates(ours, theirs, expected):
    assert verdict(FEWEST, COPY, plstm=runs(updates=ours), lstm=runs(updates=theirs)) == expected


@pytest.mark.parametrize("status", ["not converged", "failed"])
def test_updates_until_the_stopping_rule(status):
    def ended(statuses, lengths):
        every = zip(runs(updates=[10] * 5), statuses, lengths, strict=True)
        return [dataclasses.replace(run, status=status, updates=length) for run, status, length in every]

    found = {
        "plstm": ended(["converged"] * 5, [100, 110, 120, 130, 150]),
        "lstm": ended(["converged", "converged", *[status] * 3], [140, 160, 145, 145, 145]),
    }
    # A run that stopped at 145 for another reason than failing might have converged before 150.
    assert verdict(FEWEST | {"until": "converged"}, COPY, **found) == ("holds" if status == "failed" else "open")
    assert verdict(FEWEST, COPY, **found) == "open"


@pytest.mark.parametrize(("status", "expected"), [("not converged", "open"), ("failed", "does not hold")])
def test_a_run_that_has_not_failed_may_have_been_about_to_learn(status, expected):
    missed = [dataclasses.replace(run, status=status) for run in runs(updates=[10, None])]
    assert verdict({"learn": ["lstm"], "length": "unknown"}, COPY, lstm=missed) == expected
    assert verdict({"learn": ["lstm"]}, COPY, lstm=missed) == "does not hold"


def unfinished(found):
    return [*found[:-1], dataclasses.replace(found[-1], status=UNFINISHED)]


@pytest.mark.parametrize(
    ("part", "found", "ended"),
    [
        (BEST, {"plstm": runs(CLEAR), "lstm": runs([0.5, 0.51, 0.52])}, "holds"),
        (BEST, {"lstm": runs(CLEAR), "plstm": runs([0.5, 0.51, 0.52])}, "does not hold"),
        ({"alike": ["lstm"], "within": 9}, {"lstm": runs(CLEAR)}, "holds"),
        ({"learn": ["lstm"]}, {"lstm": runs(updates=[10, None])}, "does not hold"),
        ({"fail": ["lstm"]}, {"lstm": runs(updates=[None, None])}, "holds"),
        ({"not_always": ["lstm"]}, {"lstm": runs(updates=[10, None])}, "holds"),
    ],
    ids=lambda one: next(iter(one)) if isinstance(one, dict) else one,
)
def test_an_unfinished_run_may_still_change_its_score(part, found, ended):
    assert verdict(part, COPY, **found) == ended
    for name in found:
        assert verdict(part, COPY, **found | {name: unfinished(found[name])}) == "open"


def test_what_has_been_decided_stays_decided():
    reached, missed = unfinished(runs(updates=[10, 20])), unfinished(runs(updates=[None, None]))
    assert verdict({"learn": ["lstm"]}, COPY, lstm=reached) == "holds"
    assert verdict({"learn": ["lstm"]}, COPY, lstm=missed) == "does not hold"  # one of them has ended
    assert verdict({"fail": ["lstm"]}, COPY, lstm=reached) == "does not hold"
    assert verdict({"not_always": ["lstm"]}, COPY, lstm=missed) == "holds"


def test_only_an_unfinished_run_of_the_first_model_may_still_fail():
    part, fine, failed = {"never_fails": "plstm", "others": ["lstm"]}, runs([0.9] * 5), runs([0.9] * 5, failed=True)
    assert verdict(part, COPY, plstm=fine, lstm=failed) == "holds"
    assert verdict(part, COPY, plstm=unfinished(fine), lstm=failed) == "open"
    assert verdict(part, COPY, plstm=unfinished(failed), lstm=fine) == "does not hold"


def test_a_run_that_has_not_reached_the_level_yet_is_not_one_that_never_did():
    evidence = Evidence(
        find(COPY, "paper"), {"plstm": runs(updates=[10]), "lstm": unfinished(runs(updates=[None] * 2))}
    )
    because = decide_part({"claim": "", **FEWEST}, evidence).because
    assert "plstm 10; lstm never in 1 run, not yet in 1 run." in because


def test_scores_of_unfinished_runs_are_not_held_against_published_ones():
    def level(found):
        evidence = Evidence(find("plstm/pmnist-256", "paper"), {"plstm": found})
        return next(claim for claim in decide(evidence) if claim.text == "The scores match the published ones.")

    low = runs([0.5, 0.51, 0.52])
    assert level(low).verdict == "does not hold"
    assert level(unfinished(low)).verdict == "open"
    assert level(unfinished(low)).because.endswith("Some of these runs are unfinished.")


@pytest.mark.parametrize("test", [BEST, {"alike": ["plstm", "lstm"], "within": 0.1}])
def test_a_test_without_scores_says_whether_there_may_be_some_later(test):
    def because(ours):
        evidence = Evidence(find("plstm/pmnist-256"), {"plstm": ours, "lstm": runs([0.8, 0.81])})
        return decide_part({"claim": "", **test}, evidence).because

    (run,) = runs([0.9])
    without = dataclasses.replace(run, score=None)
    assert "There is no score of plstm yet: runs are unfinished." in because(unfinished([without]))
    assert "have failed" in because([dataclasses.replace(without, failed=True)])


def test_a_run_that_was_shorter_than_the_other_needed_proves_nothing():
    reached, never = runs(updates=[800, 810, 820, 830, 840]), runs(updates=[None] * 5, length=500)
    assert verdict(FEWEST, COPY, plstm=reached, lstm=never) == "open"
    assert verdict(FEWEST, COPY, plstm=never, lstm=reached) == "open"
    assert verdict(FEWEST, COPY, plstm=reached, lstm=runs(updates=[None] * 5)) == "holds"


def test_the_rank_test_is_that_of_scipy():
    chance = random.Random(1)
    for _ in range(50):
        values = chance.sample(range(100), 13)
        shift, p = rank_test(values[:6], values[6:])
        expected = stats.mannwhitneyu(values[:6], values[6:], method="exact")
        assert p == pytest.approx(expected.pvalue)
        assert shift == 21 - expected.statistic
    assert rank_test([5, None, None], [None, 5, None]) == (0, 1)
    never, some = [None] * 20, list(range(20))
    shift, p = rank_test(some, never)  # so many that nobody could try all ways
    assert (shift, p) == (200, pytest.approx(2 / math.comb(40, 20)))


@pytest.mark.parametrize(
    ("updates", "changed", "learn", "fail"),
    [
        ([10, 20], "", "holds", "does not hold"),
        ([10, None], "", "does not hold", "does not hold"),
        ([None, None], "", "does not hold", "holds"),
        ([None, None], "fewer epochs", "open", "open"),
        ([10, 20], "fewer epochs", "holds", "does not hold"),
    ],
)
def test_learning_and_failing(updates, changed, learn, fail):
    found = runs(updates=updates)
    assert verdict({"learn": ["lstm"]}, COPY, changed=changed, lstm=found) == learn
    assert verdict({"fail": ["lstm"]}, COPY, changed=changed, lstm=found) == fail


def test_each_of_several_is_compared_with_each_of_the_others():
    high, low = runs([0.90, 0.91, 0.92]), runs([0.50, 0.51, 0.52])
    part = {"best": ["fast", "refine"], "of": ["softsign", "janet"]}
    found = {"fast": high, "refine": high, "softsign": low, "janet": low}
    assert verdict(part, "fastgate/scifar", **found) == "holds"
    assert verdict(part, "fastgate/scifar", **{**found, "refine": low}) == "open"
    assert verdict(part, "fastgate/scifar", **{**found, "refine": low, "janet": high}) == "does not hold"


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ([0.990, 0.991, 0.992], [0.991, 0.992, 0.993], "holds"),
        ([0.990, 0.991, 0.992], [0.890, 0.891, 0.892], "does not hold"),
        ([0.95, 0.97, 0.99], [0.96, 0.98, 0.99], "open"),
        ([0.990, 0.991, 0.992], [0.991], "open"),
    ],
)
def test_means_that_are_alike(ours, theirs, expected):
    assert verdict({"alike": ["plstm", "lstm"], "within": 1}, plstm=runs(ours), lstm=runs(theirs)) == expected


@pytest.mark.parametrize(
    ("updates", "changed", "expected"),
    [([10, None], "", "holds"), ([10, 20], "", "open"), ([10, None], "fewer epochs", "open")],
)
def test_a_task_that_is_not_always_learned(updates, changed, expected):
    assert verdict({"not_always": ["lstm"]}, COPY, changed=changed, lstm=runs(updates=updates)) == expected


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"), [(0, 3, "holds"), (1, 3, "does not hold"), (0, 0, "open"), (0, 2, "open")]
)
def test_failures(ours, theirs, expected):
    found = {
        name: [*runs(CLEAR[:failed], failed=True), *runs(CLEAR[failed:])]
        for name, failed in {"plstm": ours, "lstm": theirs}.items()
    }
    assert verdict({"never_fails": "plstm", "others": ["lstm"]}, **found) == expected


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"rising": ["a.0", "a.-1", "b"]}, "holds"),
        ({"rising": ["b", "a.0"]}, "does not hold"),
        ({"near": {"b": 3.04}, "within": 0.05}, "holds"),
        ({"near": {"b": 3.1}, "within": 0.05}, "does not hold"),
        ({"rising": ["a.0", "missing"]}, "not tested here"),
        ({"rising": ["a.0", "a.9"]}, "not tested here"),
    ],
)
def test_numbers_of_an_analysis(part, expected):
    assert verdict(part, "plstm/fig1-decay", data={"a": [1.0, 2.0], "b": 3.0}) == expected


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (["low.*", "high.*"], "holds"),
        (["high.*", "low.*"], "does not hold"),
        (["low.*", "wide.*"], "open"),  # its mean is higher, but within its spread
        (["wide.*", "low.*"], "open"),
        (["low.*", "high.*", "wide.*"], "open"),
        (["high.*", "low.*", "wide.*"], "does not hold"),
        (["low.*", "one.*"], "open"),  # a single run is not a mean
    ],
)
def test_numbers_of_several_runs_are_compared_with_their_spread(paths, expected):
    data = {"low": [1.0, 1.1, 0.9], "high": [2.0, 2.1, 1.9], "wide": [0.0, 3.0, 6.0], "one": [9.0]}
    assert verdict({"rising": paths}, "plstm/fig1-decay", data=data) == expected


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["lead"], "holds"),
        (["lag"], "does not hold"),
        (["slight"], "holds"),
        (["slight", "lead"], "open"),  # each of two tests may err half as often
        (["lead", "lag"], "does not hold"),
        (["one"], "open"),
        (["two"], "open"),  # equal, but too few
        (["lead", "broken"], "open"),
        (["lead", "missing"], "not tested here"),
    ],
)
def test_differences_between_runs_of_one_seed_are_tested_against_zero(names, expected):
    data = {
        "lead": [1.0, 1.1, 0.9],
        "lag": [-2.0, -2.1, -1.9],
        "slight": [0.4, 1.0, 0.6, 1.6],
        "one": [9.0],
        "two": [9.0, 9.0],
        "broken": [1.0, math.nan, 1.1],
    }
    assert verdict({"positive": {name: f"{name}.*" for name in names}}, "plstm/fig1-decay", data=data) == expected


def test_the_test_of_differences_is_that_of_scipy():
    values = [0.4, 1.0, 0.6, 1.6]
    evidence = Evidence(find("plstm/fig1-decay", "paper"), {}, data={"lead": values})
    _, words = positive({"positive": {"rare words": "lead.*"}}, evidence)
    expected = f"rare words +0.9 over 4 runs, p = {stats.ttest_1samp(values, 0).pvalue:.2g}."
    assert words == f"Mean difference, t test: {expected}"


def test_the_published_level_needs_the_published_settings():
    experiment = find("plstm/pmnist-256", "paper")
    published = experiment.published["accuracy"]["plstm"].mean / 100
    near, far = ([published + shift + part / 1000 for part in (-1, 0, 1)] for shift in (0, 0.1))
    other = experiment.published["accuracy"]["lstm"].mean / 100
    lstm = runs([other - 0.001, other, other + 0.001])

    def last(scores, changed="", lstm=lstm):
        return decide(Evidence(experiment, {"plstm": runs(scores), "lstm": lstm}, changed))[-1].verdict

    assert last(near, lstm=[]) == "open"  # a model is missing

    assert (last(near), last(far), last(far, "fewer epochs"), last(far[:1])) == (
        "holds",
        "does not hold",
        "open",
        "open",
    )


def test_a_smoke_run_tests_no_claim():
    assert {claim.verdict for claim in decide(Evidence(find("plstm/pmnist-256", "smoke"), {"plstm": runs(CLEAR)}))} == {
        "not tested here"
    }


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        (runs([0.3, 0.31, 0.32]), runs([0.8, 0.81, 0.82]), "does not hold"),
        (runs([0.8, 0.81, 0.82]), runs([0.3, 0.31, 0.32]), "open"),  # better, but it has not learned the task
        (runs([0.3, 0.31, 0.32]), runs([0.25, 0.33, 0.4]), "open"),
        (runs([0.3, 0.31, 0.32]), runs([0.8, 0.81, 0.82], length=2000), "open"),
        (runs([0.3]), runs([0.8]), "open"),
    ],
)
def test_of_models_that_never_reach_the_level_a_clearly_better_score_refutes(ours, theirs, expected):
    assert verdict(FEWEST, COPY, plstm=ours, lstm=theirs) == expected


@pytest.mark.parametrize("id", parts_of_claims())
def test_parts_of_claims_name_models_and_tests_that_exist(id):
    experiment = find(id, "paper")
    for part in parts_of_claims()[id]:
        kinds = [name for name in part if name in KNOWN]
        assert len(kinds) <= 1
        assert set(part) <= {"claim", "of", "others", "within", "until", "length", *kinds}
        assert part.get("until", "converged") == "converged"
        assert part.get("length", "unknown") == "unknown"
        assert set(models_of(part)) <= set(experiment.models)
        if kinds and kinds[0] in ("learn", "fail", "not_always", "fewest"):
            assert experiment.report.reach is not None
        assert bool(kinds and kinds[0] in OF_DATA) <= (experiment.function is not None or experiment.kind != "training")


def test_written_verdicts_take_precedence(tmp_path):
    write_runs(tmp_path, {"plstm": CLEAR, "lstm": [0.80, 0.81, 0.805]})
    words = {"claims": [{"claim": "Ours.", "verdict": "open"}], "because": "So it is.", "conditions": "At night."}
    (tmp_path / "verdicts.yaml").write_text(yaml.safe_dump({"plstm/pmnist-256": {"short": words}}))
    (section,) = gather([tmp_path])
    assert [dataclasses.astuple(claim) for claim in section.claims] == [("Ours.", "open", "")]
    assert section.judged == "So it is."
    assert dict(section.facts)["conditions"] == "At night."


@pytest.mark.parametrize(
    "content",
    [
        "- a list",
        "a: {short: {claims: [{claim: x, verdict: perhaps}]}}",
        "a: {short: {claims: [{verdict: open}]}}",
        "a: [",
    ],
)
def test_verdicts_that_cannot_be_read_are_answered_with_a_sentence(tmp_path, content):
    (tmp_path / "verdicts.yaml").write_text(content)
    with pytest.raises(ValueError, match=r"^expected .*verdicts"):
        judgements(tmp_path)


def test_the_tests_agree_with_what_was_written_by_hand_about_the_results_of_the_project():
    # A person may be more careful than a test, and says why.
    written = yaml.safe_load((ROOT / "results/verdicts.yaml").read_text("utf-8"))
    compared = 0
    for section in gather([ROOT / "results"], by_hand=False):
        decided = {claim.text: claim.verdict for claim in section.claims}
        decided["Accuracies of the published level."] = decided.get("The scores match the published ones.")
        for claim in (written.get(section.id) or {}).get(section.preset, {}).get("claims", []):
            if decided.get(claim["claim"]) not in (None, "not tested here"):
                careful = claim["verdict"] == "open" and claim.get("because")
                assert careful or decided[claim["claim"]] == claim["verdict"], (section.id, claim)
                compared += 1
    assert compared


DATA = {"T=200": {"ours": {"1": {"mean": [0.9, 0.4]}, "2": {"mean": [0.7, 0.2]}}}, "models": [{"p": None}, {"p": 0.3}]}


def test_a_star_stands_for_all_that_there_are():
    assert number_at(DATA, "T=200.ours.*.mean.0") == pytest.approx(0.8)
    assert number_at(DATA, "T=200.ours.*.mean.*") == pytest.approx(0.55)
    assert number_at(DATA, "T=200.ours.2.mean.-1") == 0.2
    assert number_at({"models": [{"name": "a", "p": 0.3}, {"name": "b.c", "p": 0.5}]}, "models.[name=b.c].p") == 0.5
    for path in ("T=200.theirs.*", "models.[p=4].p", "T=200.ours.*", "models.*.p", "models.*.p.*", "models.2.p"):
        with pytest.raises(ValueError, match="expected a number at"):
            number_at(DATA, path)


@pytest.mark.parametrize(("bound", "verdict"), [(0.1, "holds"), (0.3, "does not hold")])
def test_above_is_above_with_every_one(bound, verdict):
    evidence = Evidence(find("plstm/copy-generalization", "paper"), {}, data=DATA)
    part = {"claim": "It is.", "above": {"T=200.ours.*.mean.*": bound}}
    found = decide_part(part, evidence)
    assert (found.verdict, found.because) == (verdict, f"Found: T=200 ours mean 0.2 (above {bound:g}).")


@pytest.mark.parametrize(("bound", "count", "verdict"), [(0.8, 1, "holds"), (0.95, 0, "open")])
def test_one_above_is_enough_to_show_that_it_happens(bound, count, verdict):
    evidence = Evidence(find("plstm/copy-generalization", "paper"), {}, data=DATA)
    part = {"claim": "It can be.", "some_above": {"T=200.ours.*.mean.0": bound}}
    found = decide_part(part, evidence)
    assert (found.verdict, found.because) == (
        verdict,
        f"Found: T=200 ours mean 0 above {bound:g} in {count} of 2 runs.",
    )


def test_every_experiment_has_its_claims_in_parts():
    of_papers = {experiment.id for experiment in every() if not experiment.id.startswith("own/")}
    assert set(parts_of_claims()) == {*of_papers, "own/attractors"}
