"""The cost of a study before it runs, compared with what is measured when it does."""

from collections import Counter
from dataclasses import replace

import jax
import numpy as np
import pandas as pd
import pytest

from unpooled.coordinator.run import run_study
from unpooled.diagnostics import expected_cost as module
from unpooled.diagnostics.expected_cost import expected_cost
from unpooled.diagnostics.stand_ins import Size, columns_of, stand_ins
from unpooled.disclosure.limits import NONE, Limits
from unpooled.engines.in_process import InProcess, open_sites
from unpooled.errors import LimitRefusal, StudyError
from unpooled.methods.method import METHODS, find, with_settings
from unpooled.protocol.codec import encode
from unpooled.protocol.messages import Ask, Together, Vjp
from unpooled.study import Study

NAMES = ["x1", "x2", "x3"]


class Counting(InProcess):
    """Counts questions and θ by stage and kind."""

    def __init__(self, sites):
        super().__init__(sites)
        self.asked, self.thetas = Counter(), Counter()

    def exchange(self, question):
        for part in question.questions if isinstance(question, Together) else (question,):
            if isinstance(part, Ask | Vjp):
                self.asked[part.label] += 1
                self.thetas[part.label] += len(jax.tree.leaves(part.parameters)[0])
        return super().exchange(question)


def people(rows=120, seed=1, incomplete=False):
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(rng.standard_normal((rows, 3)), columns=NAMES)
    table["w"] = (rng.random(rows) < 1 / (1 + np.exp(-table["x1"]))).astype(int)
    table["y"] = table["x1"] + table["w"] + rng.standard_normal(rows)
    if incomplete:
        table["u"] = np.where(rng.random(rows) < 0.3, np.nan, table["x2"] + rng.standard_normal(rows))
    return table


def study_of(method, settings, **more):
    columns = {"incomplete": ["u"]} if method == "causal_fi" else {}
    study = Study(treatment="w", outcome="y", covariates=NAMES, **columns, **more)
    return with_settings(study, method, settings)


def recounted(course, engine):
    """The course with as many questions and θ as were really asked, each stage and kind once."""
    once = {module.label(one): one for one in course.questions}
    assert set(once) == {name for name in engine.asked if not name.startswith("diagnostics/")}
    found = (replace(one, thetas=engine.thetas[k], asked=engine.asked[k]) for k, one in once.items())
    return replace(course, questions=tuple(found), longest=None)


SMALL = {
    "aipw": ({}, NONE),
    "meta_analysis": ({"repeats": 1}, NONE),
    "fedci": ({"structure": "isotropic", "basis": 5, "draws": 32}, NONE),
}


def measured_and_expected(method, settings, limits, monkeypatch, diagnostics=False):
    study = study_of(method, settings, diagnostics=diagnostics)
    tables = {f"site{s}": people(seed=s, incomplete=method == "causal_fi") for s in range(3)}
    engine = Counting(open_sites(study, tables, limits))
    cost = run_study(study, engine).cost
    kind = type(find(method))
    original = kind.expected

    def counted(self, settings, context):
        return recounted(original(self, settings, context), engine)

    plain = expected_cost(study, tables, limits=limits)
    with monkeypatch.context() as patch:
        patch.setattr(kind, "expected", counted)
        return cost, plain, expected_cost(study, tables, limits=limits)


@pytest.mark.slow
@pytest.mark.parametrize("method", SMALL)
def test_bytes_are_those_of_the_messages_given_the_number_of_theta(method, monkeypatch):
    cost, plain, exact = measured_and_expected(method, *SMALL[method], monkeypatch)
    assert exact.bytes_out == pytest.approx(max(cost.bytes_up.values()), rel=0.05)
    assert exact.bytes_in == pytest.approx(max(cost.bytes_down.values()), rel=0.05)
    least, most = plain.rounds, (plain.longest or plain).rounds
    assert 0.7 * least <= cost.rounds <= 1.3 * most
    assert most <= 1.6 * least


@pytest.mark.slow
def test_sites_with_limits_send_half_the_bytes(monkeypatch):
    """They send single precision, and fewer features if they are small."""
    settings = {"structure": "isotropic", "basis": 5, "draws": 32}
    cost, plain, exact = measured_and_expected("fedci", settings, Limits(), monkeypatch)
    assert exact.bytes_out == pytest.approx(max(cost.bytes_up.values()), rel=0.05)
    free = expected_cost(study_of("fedci", settings), {"a": people(seed=1), "b": people(seed=2)})
    assert 0.4 < plain.bytes_out / free.bytes_out < 0.65


@pytest.mark.slow
def test_diagnostics_are_part_of_the_cost(monkeypatch):
    cost, plain, _ = measured_and_expected("aipw", {"estimator": "difference"}, NONE, monkeypatch, True)
    assert plain.rounds == pytest.approx(cost.rounds, rel=0.3)
    assert plain.bytes_out == pytest.approx(max(cost.bytes_up.values()), rel=0.3)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("family", ["continuous", "binary"])
def test_every_question_that_a_method_expects_fits_its_stages(method, family):
    """Parameters in the wrong shapes would fail when the stages are traced."""
    study = study_of(method, {}, family=family, diagnostics=True)
    found = expected_cost(study, size=Size(sites=5, rows=400, features=6))
    assert found.sites == 5 and found.rows == 400 and found.features == 6
    ends = (found, found.longest or found)
    assert all(one.rounds > 4 and one.bytes_out > 0 and one.minutes > 0 for one in ends)
    assert ends[0].rounds <= ends[1].rounds
    method_ = find(method)
    assert ends[1].rounds <= 4 + max(method_.most_rounds(method_.Settings()), 9)


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("fedci", {"inference": "variational"}),
        ("causal_rff", {"latent": "both"}),
        ("causal_fi", {"inference": "variational"}),
        ("aipw", {"estimator": "ipw"}),
        ("aipw", {"estimator": "difference"}),
    ],
)
def test_so_do_those_of_other_settings(method, settings):
    assert expected_cost(study_of(method, settings), size=Size(sites=4, rows=200)).rounds > 4


def test_ten_thousand_sites_take_no_more_memory_than_three():
    found = expected_cost(study_of("fedci", {}), size=Size(10_000, 10_000, 30), engine="nvflare")
    assert found.sites * found.rows == 10**8
    few = expected_cost(study_of("fedci", {}), size=Size(3, 10_000, 30), engine="nvflare")
    assert few.bytes_out == pytest.approx(found.bytes_out, rel=0.01)  # replies do not grow with the sites
    assert sum(found.seconds.values()) > 100 * sum(few.seconds.values())


def test_the_size_of_a_message_is_that_of_its_encoding():
    study = study_of("aipw", {})
    agreement = module._agreed(study, stand_ins(study), None, NONE)
    question = module.adoption(agreement.plan.study, agreement.agreement.schema, agreement.agreement.scaling)
    assert module._size(question) == pytest.approx(len(encode(question)), rel=0.02)


def test_limits_that_no_plan_respects_are_refused():
    with pytest.raises(LimitRefusal):
        expected_cost(study_of("fedci", {}), size=Size(3, 20, 15), limits=Limits())


def test_a_size_must_be_possible():
    with pytest.raises(StudyError):
        Size(0, 100)
    with pytest.raises(StudyError):
        columns_of(study_of("causal_fi", {}), Size(2, 100, 1))
