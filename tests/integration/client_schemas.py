"""Pydantic models, from which the clients under test make requests.

Every value is bounded and no object has undeclared properties, so even a small model at a high
temperature finishes a response within MAX_TOKENS.
"""

import enum
import typing

from pydantic import BaseModel, ConfigDict, Field

MAX_TOKENS = 1000
TEXT = "Tom, a cat with four legs, belongs to Ann, who is 30."
QUESTION = "What is the weather in Paris today?"
# Sampling of the requests whose responses must be valid: greedy, then with improbable tokens.
SAMPLINGS = [{"temperature": 0}] + [{"temperature": 1.5, "seed": seed} for seed in range(2)]


class Closed(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Kind(str, enum.Enum):
    CAT = "cat"
    DOG = "dog"


class Owner(Closed):
    name: str = Field(max_length=10)
    age: typing.Optional[int] = Field(ge=0, le=120)


class Animal(Closed):
    """An animal of the text."""
    name: str = Field(max_length=10, description="The name of the animal.")
    kind: Kind
    legs: typing.Literal[2, 4]
    owner: Owner | None
    colours: list[typing.Literal["black", "white"]] = Field(max_length=2)


class Weather(Closed):
    """Returns the weather of a city."""
    city: str = Field(max_length=10)
    days: int = Field(ge=1, le=7)


class Person(Closed):
    """A person of the text."""
    name: str = Field(max_length=10)
    age: int = Field(ge=0, le=120)


class People(Closed):
    """All persons of the text."""
    people: list[Person] = Field(min_length=1, max_length=3)
