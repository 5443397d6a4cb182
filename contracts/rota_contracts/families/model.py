"""MODEL: the whole API, driven at random, against a scheduler of two hundred pure lines."""

from __future__ import annotations

from rota_contracts.clause import Level, clause
from rota_contracts.model_machine import compare_with_the_model
from rota_contracts.scene import Scene


class ModelClauses:
    """All rules at once."""

    @clause(
        "MODEL",
        "every sequence of calls is answered as the model answers it",
        level=Level.NODES,
        uses=("virtual",),
        minutes=15,  # some 20,000 calls of the store
    )
    async def test_every_sequence_of_calls_is_answered_as_the_model_answers_it(self, scene: Scene) -> None:
        await compare_with_the_model(scene)
