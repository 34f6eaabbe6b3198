"""Random pipelines of random transformers answer as themselves on random tables."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from objects.exact import check_exact

from workbench import Workbench

pytest.importorskip("sklearn", reason="scikit-learn is not installed")

from sklearn import ensemble, linear_model, preprocessing
from sklearn.compose import make_column_transformer
from sklearn.decomposition import PCA
from sklearn.feature_selection import VarianceThreshold
from sklearn.impute import KNNImputer, SimpleImputer
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline

COUNT = 60

COLUMNS = {
    "float": lambda draw: draw.normal(size=COUNT) * 10.0 ** draw.integers(-3, 9),
    "whole": lambda draw: draw.integers(-5, 5, COUNT),
    "float32": lambda draw: draw.normal(size=COUNT).astype(np.float32),
    "boolean": lambda draw: draw.random(COUNT) < 0.5,
    "nullable": lambda draw: pd.array(draw.integers(0, 9, COUNT), dtype="Int64"),
    "text": lambda draw: draw.choice(["a", "b", "Ü", ""], COUNT),
    "object": lambda draw: draw.choice(["a", "b", "c"], COUNT).astype(object),
    "category": lambda draw: pd.Categorical(draw.choice(list("abc"), COUNT)),
    "category of numbers": lambda draw: pd.Categorical(draw.choice([1, 2, 7], COUNT)),
}
NUMBERS = ("float", "whole", "float32", "boolean", "nullable")
SCALERS = (
    preprocessing.StandardScaler,
    preprocessing.MinMaxScaler,
    preprocessing.RobustScaler,
    preprocessing.QuantileTransformer,
    preprocessing.PolynomialFeatures,
    preprocessing.SplineTransformer,
    VarianceThreshold,
)
IMPUTERS = (SimpleImputer, KNNImputer)
ENCODERS = (
    lambda: preprocessing.OneHotEncoder(handle_unknown="ignore"),
    lambda: preprocessing.OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1),
    lambda: preprocessing.TargetEncoder(cv=2, random_state=0),
)
LAST = (
    lambda: linear_model.LogisticRegression(max_iter=50),
    lambda: ensemble.RandomForestClassifier(3, random_state=0),
    lambda: ensemble.HistGradientBoostingClassifier(max_iter=3),
    lambda: KNeighborsClassifier(2),
    GaussianNB,
)


@st.composite
def tables(draw: Any) -> pd.DataFrame:
    kinds = draw(st.lists(st.sampled_from(list(COLUMNS)), min_size=1, max_size=5))
    seeded = np.random.default_rng(draw(st.integers(0, 2**16)))
    table = pd.DataFrame(
        {f"{place} {kind}": COLUMNS[kind](seeded) for place, kind in enumerate(kinds)}
    )
    for place, kind in enumerate(kinds):
        if kind not in ("whole", "boolean") and draw(st.booleans()):
            table.loc[seeded.random(COUNT) < 0.2, f"{place} {kind}"] = None
    return table


@st.composite
def pipelines(draw: Any, table: pd.DataFrame) -> Any:
    numbers = [name for name in table if name.partition(" ")[2] in NUMBERS]
    texts = [name for name in table if name not in numbers]
    scale = [draw(st.sampled_from(IMPUTERS))()]
    scale += [each() for each in draw(st.lists(st.sampled_from(SCALERS), max_size=2))]
    encode = [SimpleImputer(strategy="most_frequent"), draw(st.sampled_from(ENCODERS))()]
    chosen = [(make_pipeline(*scale), numbers), (make_pipeline(*encode), texts)]
    steps = [make_column_transformer(*(each for each in chosen if each[1]), sparse_threshold=0)]
    if draw(st.booleans()):
        steps.append(PCA(1))
    return make_pipeline(*steps, draw(st.sampled_from(LAST))())


@pytest.mark.filterwarnings("ignore")
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.data())
def test_random_pipelines(wb: Workbench, data: Any) -> None:
    """Whatever a pipeline is made of, and its rows are, the served copy answers as it does."""
    table = data.draw(tables())
    model = data.draw(pipelines(table))
    labels = np.arange(COUNT) % 3
    try:
        model.fit(table, labels)
    except ValueError:  # scikit-learn itself does not take such a table
        return
    wb.serve(model, "random", example=table[: data.draw(st.integers(1, COUNT))])
    order = data.draw(st.permutations(list(table)))
    check_exact(wb, "random", model, table[order])
