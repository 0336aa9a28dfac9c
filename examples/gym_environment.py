"""Any gymnasium environment of texts is a benchmark: a guessing game, and a function that plays it.

python examples/gym_environment.py
"""

import gymnasium

import lemur_ray as lr


class Guess(gymnasium.Env):
    """A number from 1 to 63; the environment answers a guess with higher, lower or right."""

    observation_space = action_space = gymnasium.spaces.Text(100)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.number = int(self.np_random.integers(1, 64))
        return "Guess my number, from 1 to 63.", {}

    def step(self, action):
        guess = int(action) if action.strip().isdigit() else 0
        answer = "right" if guess == self.number else "higher" if guess < self.number else "lower"
        return answer, float(answer == "right"), answer == "right", False, {"is_success": answer == "right"}


gymnasium.register("Guess-v0", Guess)


def bisect(messages):
    """Halve the interval that the conversation so far leaves."""
    low, high, guess = 1, 63, 32
    for message in messages:
        low = guess + 1 if message["content"] == "higher" else low
        high = guess - 1 if message["content"] == "lower" else high
        guess = (low + high) // 2
    return str(guess)


if __name__ == "__main__":
    result = lr.evaluate(bisect, f"gym:{__name__}:Guess-v0", limit=20, out="examples/guess")
    print(f"solved {result.headline['solved']} of {result.headline['n']}")
    print(result.to_pandas()[["task", "outcome", "turns"]].head())
