"""Language models: words in, the next word out, with a memory whose timescales one chooses."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear

from ..cells import wide
from ..gates import Gate
from ..language.lanes import in_lanes
from ..nn import LockedDropout, Recurrent
from ..nn.expect import expect_number, expect_probability, expect_size
from ..nn.lstm import InputGate
from ..nn.sequence import Inputs
from ..pretrained import Pretrained
from ..timescales import Timescales
from . import saving
from .activations import Activations, layers_reading
from .embedding import Embedding
from .generation import Sampling, continued
from .modes import detached, evaluating
from .stack import StartingBias, make_layers, sizes, spread
from .text import Text, Words, tokens_of, words_of

State = tuple[Any, ...]
"""The state of every layer, first to last, each as the layer returns it."""
Record = dict[str, Tensor]


class Loss(NamedTuple):
    """What a training step needs."""

    nll: Tensor
    """Mean negative log likelihood of the targets, a scalar, float32 or wider."""
    state: State
    """The state after the last step, which gradients do not flow through: the next chunk starts from it."""
    penalties: dict[str, Tensor]
    """What is added to the likelihood in training, each with its factor: `activation` and `change`."""

    @property
    def total(self) -> Tensor:
        """What to minimise."""
        total = self.nll
        for penalty in self.penalties.values():
            total = total + penalty
        return total


class LanguageModel(Pretrained):
    """AWD-LSTM with any gate, any timescales and any engine.

    Words become vectors, go through recurrent layers one after the other, and what comes out is compared with the
    vector of every word (`tie`) or with weights of its own. Regularised as in Merity, Keskar & Socher, "Regularizing
    and optimizing LSTM language models" (ICLR 2018): whole words are dropped, dropout is locked over a chunk, the
    recurrent matrices are dropped (gradients reach the stored matrix), and large or quickly changing activations of
    the last layer are penalised. The defaults are those for the Penn Treebank; `language_model(name, vocabulary)`
    makes the models of the papers.

    Args:
        vocabulary: number of words V, or a vocabulary (`len`, `encode`, `decode`), with which text can be given.
        embedding_size: length of a word's vector; None for one-hot vectors of length V.
        hidden_size: units of every layer, but for the last one where `tie` sets it; or one number per layer.
        num_layers: number of layers.
        layer: what layers are made of: "lstm", "gru", "janet" or "nru".
        gate: forget gate of all layers, a name or an object of `remanence.gates`.
        input_gate: "separate", "coupled" or None, see `remanence.LSTM`.
        forget_bias: for layers without timescales: a number, "matched" or None, see `remanence.LSTM`; "uniform" draws
            all biases from U(-1/sqrt(H), 1/sqrt(H)) whatever the gate.
        timescales: one object of `remanence.timescales` for all layers, or a list with one (or None) per layer.
        tie: whether the softmax uses the words' vectors, so that the last layer is as wide as they are.
        word_dropout: probability of dropping a word of the vocabulary.
        input_dropout: of locked dropout on the words' vectors.
        layer_dropout: of locked dropout between layers.
        output_dropout: of locked dropout on what the last layer gives.
        weight_drop: probability of dropping an entry of a recurrent matrix, drawn once per call.
        activation_penalty: factor of the mean square of the last layer's output, after dropout.
        change_penalty: factor of the mean square of its change from step to step, before dropout.
        initial_range: vectors and softmax weights start in U(-r, r), the softmax bias at zero; None keeps torch's
            initialisation.
        frozen_recurrent: never train the recurrent matrices; to repeat results of code in which they did not train.
        engine: how to run: "auto", or the name of an engine.

    Called as `logits, state = model(tokens, state)`. `remanence.timescales.of(model)` and `estimate(model, tokens)`
    give one tensor per layer.
    """

    def __init__(
        self,
        vocabulary: int | Words,
        embedding_size: int | None = 400,
        hidden_size: int | Sequence[int] = 1150,
        num_layers: int = 3,
        *,
        layer: str = "lstm",
        gate: str | Gate = "sigmoid",
        input_gate: InputGate | None = None,
        forget_bias: StartingBias = None,
        timescales: Timescales | Sequence[Timescales | None] | None = None,
        tie: bool = True,
        word_dropout: float = 0.1,
        input_dropout: float = 0.4,
        layer_dropout: float = 0.25,
        output_dropout: float = 0.4,
        weight_drop: float = 0.5,
        activation_penalty: float = 2.0,
        change_penalty: float = 1.0,
        initial_range: float | None = 0.1,
        frozen_recurrent: bool = False,
        engine: str = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.vocabulary = None if isinstance(vocabulary, int) else _expect_words(vocabulary)
        self.words = expect_size("vocabulary", vocabulary if isinstance(vocabulary, int) else len(vocabulary))
        units = sizes(hidden_size, num_layers, embedding_size, tie)
        own_timescales = spread(timescales, units)
        self.arguments: dict[str, Any] = {
            "embedding_size": embedding_size,
            "hidden_size": units,
            "num_layers": num_layers,
            "layer": layer,
            "gate": gate,
            "input_gate": input_gate,
            "forget_bias": forget_bias,
            "timescales": own_timescales,
            "tie": tie,
            "word_dropout": word_dropout,
            "input_dropout": input_dropout,
            "layer_dropout": layer_dropout,
            "output_dropout": output_dropout,
            "weight_drop": weight_drop,
            "activation_penalty": activation_penalty,
            "change_penalty": change_penalty,
            "initial_range": initial_range,
            "frozen_recurrent": frozen_recurrent,
            "engine": engine,
        }
        """What makes this model once more, with its vocabulary, device and dtype."""
        self.activation_penalty = expect_number("activation_penalty", activation_penalty)
        self.change_penalty = expect_number("change_penalty", change_penalty)
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        self.embedding = Embedding(
            self.words, embedding_size, expect_probability("word_dropout", word_dropout), **place
        )
        self.input_dropout = LockedDropout(expect_probability("input_dropout", input_dropout))
        self.layers = make_layers(
            [self.embedding.width, *units],
            layer=layer,
            gate=gate,
            input_gate=input_gate,
            forget_bias=forget_bias,
            timescales=own_timescales,
            frozen_recurrent=frozen_recurrent,
            weight_drop=weight_drop,
            engine=engine,
            **place,
        )
        self.layer_dropout = LockedDropout(expect_probability("layer_dropout", layer_dropout))
        self.output_dropout = LockedDropout(expect_probability("output_dropout", output_dropout))
        self.decoder = nn.Linear(units[-1], self.words, **place)
        if tie:
            self.decoder.register_parameter("weight", None)  # the words' vectors are the only ones
        if initial_range is not None:
            self._initialise(expect_number("initial_range", initial_range))

    # What it is made of.

    @property
    def tied(self) -> bool:
        """Whether the softmax uses the words' vectors."""
        return bool(self.arguments["tie"])

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.decoder.bias.device

    @property
    def gate(self) -> Gate:
        """The forget gate of all layers."""
        return self._layer(0).gate

    def __getattr__(self, name: str) -> Any:
        if name == "gate":  # layers have none: they say so, where torch would say that there is no such attribute
            return self._layer(0).gate
        return super().__getattr__(name)

    def forget_biases(self) -> list[tuple[Tensor, ...]]:
        """For every layer, the sums of the biases of the rows of the gate, `(H,)` each."""
        return [biases for n in range(len(self.layers)) for biases in self._layer(n).forget_biases()]

    # Running it.

    def forward(self, tokens: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Scores of every word for the place after each of these.

        Args:
            tokens: whole numbers `(T, B)`, or `(T,)` for one text.
            state: state to start from, as returned; zeros if None.

        Returns:
            Logits `(T, B, V)`, and the state after the last step.
        """
        dropped, _, state = self._run(tokens, state)
        return self._decode(dropped), state

    def penalised(self, tokens: Tensor, state: State | None = None) -> tuple[Tensor, State, dict[str, Tensor]]:
        """As calling the model, and in training the penalties beside it, each with its factor: see `Loss`."""
        dropped, raw, state = self._run(tokens, state)
        return self._decode(dropped), state, self._penalties(dropped, raw) if self.training else {}

    def compile(self, *arguments: Any, **keywords: Any) -> None:
        """As of every module; training does not call the model but `penalised`, which is compiled as well."""
        super().compile(*arguments, **keywords)
        self.penalised = torch.compile(self.penalised, *arguments, **keywords)  # type: ignore[method-assign]

    def loss(self, tokens: Tensor, targets: Tensor, state: State | None = None) -> Loss:
        """The likelihood of the targets and, in training, the penalties.

        Args:
            tokens: whole numbers `(T, B)`, or `(T,)` for one text.
            targets: what comes after each of them, the same shape.
            state: state to start from, as returned; zeros if None.
        """
        if targets.shape != tokens.shape:
            raise ValueError(f"expected targets of shape {tuple(tokens.shape)}, got {tuple(targets.shape)}")
        logits, state, penalties = self.penalised(tokens, state)
        return Loss(self._nll(logits.flatten(0, -2), targets.flatten()), detached(state), penalties)

    def watch(self, input: Inputs, state: Any = None, dt: Any = None) -> tuple[list[Record], Any, Tensor | None]:
        """Run on the loop engine and keep what every gate did.

        Args:
            input: whole numbers `(T, B)`.
            state: state to start from, as returned; zeros if None.
            dt: None; words come at unit steps.

        Returns:
            A mapping of `(T, B, H)` per layer as of `remanence.record`, the state after the last step, and None (all
            texts have T steps).
        """
        if dt is not None:
            raise ValueError("expected no dt, got one: words come at unit steps")
        if not isinstance(input, Tensor) or input.dim() != 2:
            raise ValueError(f"expected whole numbers of shape (T, B), got {getattr(input, 'shape', type(input))}")
        records: list[Record] = []

        def keep(layer: Recurrent, values: Tensor, before: Any) -> tuple[Tensor, Any]:
            (record,), after, _ = layer.watch(values, before)
            records.append(record)
            return record["hidden"], after

        _, _, after = self._run(input, state, keep)
        return records, after, None

    # Measuring it.

    def token_losses(self, stream: Text, *, batch: int = 1, chunk: int = 70) -> Tensor:
        """Negative log likelihood of every word of a text but the first, given all words before it.

        Measured without dropout, the state carried from chunk to chunk: the length of a chunk changes rounding only.

        Args:
            stream: a text, its words or their numbers `(N,)`.
            batch: number of equal parts that are read side by side, each from a fresh state; 1 for all in one.
            chunk: steps per call.

        Returns:
            float32 `(N - 1,)` on the CPU: entry n is that of word n + 1. With several parts, part after part, each
            without its first word, and without the words left over at the end.
        """
        return self._losses(stream, batch, chunk).float()

    def perplexity(self, stream: Text, batch: int = 1, chunk: int = 70) -> float:
        """exp of the mean of `token_losses`. Its logarithm to base 2 is the bits per word, or per character."""
        return math.exp(float(self._losses(stream, batch, chunk).double().mean()))

    def activations(
        self,
        text: Text,
        *,
        state: State | None = None,
        timescales: Sequence[Tensor] | None = None,
        chunk: int = 70,
    ) -> Activations:
        """Hidden and cell states of every unit at every word, the units of a layer sorted by their timescale.

        Args:
            text: a text, its words or their numbers `(N,)`.
            state: state to start from, such as the `state` of what came before; zeros if None.
            timescales: what to sort by, `(H,)` per layer. By default those of the biases; for gates without one
                (power_law) those estimated from the forget values on this text.
            chunk: steps per call; changes nothing but memory.
        """
        tokens = self._tokens(text, 1)
        columns, chunk = tokens.unsqueeze(1).to(self.device), expect_size("chunk", chunk)
        chunks = [columns[start : start + chunk] for start in range(0, len(columns), chunk)]
        with evaluating(self):
            layers, after = layers_reading(self, chunks, state, timescales)
        words = None if self.vocabulary is None else words_of(tokens.tolist(), self.vocabulary)
        return Activations(tokens, words, layers, after)

    # Writing with it.

    def generate(
        self,
        prompt: Text = (),
        length: int = 100,
        *,
        temperature: float = 1.0,
        top_k: int | None = None,
        generator: torch.Generator | None = None,
    ) -> Iterator[Any]:
        """Words that go on from a prompt, one by one as they are drawn.

        Args:
            prompt: a text, its words or their numbers; empty to start after the end of a sentence.
            length: number of words to draw.
            temperature: logits are divided by it; 0 always takes the likeliest word.
            top_k: draw from the k likeliest words only.
            generator: source of random numbers; None for torch's global one. One on the CPU serves every device.

        Yields:
            Words, where the model has a vocabulary, else their numbers.
        """
        sampling = Sampling(temperature, top_k, generator)
        end = getattr(self.vocabulary, "end", None)
        tokens = self._tokens(prompt, 0)
        if len(tokens) == 0 and end is None:
            raise ValueError("expected a prompt, got none, and no vocabulary with an end of sentence to start after")
        if len(tokens) == 0:
            tokens = torch.tensor([end], device="cpu")
        numbers = continued(self, tokens.to(self.device), expect_size("length", length), sampling)
        vocabulary = self.vocabulary
        return numbers if vocabulary is None else (words_of([number], vocabulary)[0] for number in numbers)

    # Keeping it.

    def save(self, path: str | Path) -> None:
        """Write weights, arguments and vocabulary to one safetensors file, all of it or nothing."""
        saving.save(Path(path), self.state_dict(), self.arguments, self.words, self.vocabulary, self.decoder.bias.dtype)

    @classmethod
    def load(
        cls, path: str | Path, *, vocabulary: Words | None = None, device: torch.device | str | None = None
    ) -> Self:
        """The model in a file that `save` wrote; nothing is unpickled.

        Args:
            path: the file.
            vocabulary: in place of the one in the file.
            device: where to put it.
        """
        weights, arguments, words, own, dtype = saving.load(Path(path))
        known = own if vocabulary is None else vocabulary
        with torch.random.fork_rng(devices=[]):  # what is drawn here is overwritten: leave the caller's numbers alone
            model = cls(words if known is None else _expect_size(known, words), **arguments, dtype=dtype, device="cpu")
        try:
            model.load_state_dict(weights)
        except RuntimeError as error:
            raise ValueError(f"expected weights that fit their arguments, got {path}: {error}") from None
        return model if device is None else model.to(device)

    def recurrent_layers(self) -> list[Recurrent]:
        return [self._layer(n) for n in range(len(self.layers))]

    def pretrained_arguments(self) -> dict[str, Any]:
        return {"vocabulary": saving.plain_vocabulary(self.vocabulary), "words": self.words, **self.arguments}

    @classmethod
    def from_arguments(cls, arguments: dict[str, Any], device: torch.device | str) -> Self:
        known, words = arguments.pop("vocabulary"), arguments.pop("words")
        if known is None or isinstance(known, dict):
            known = saving.vocabulary_of(known)
        return cls(words if known is None else _expect_size(known, words), **arguments, device=device)

    # Inside.

    def _run(
        self,
        tokens: Tensor,
        state: State | None,
        step: Callable[[Recurrent, Tensor, Any], tuple[Tensor, Any]] | None = None,
    ) -> tuple[Tensor, Tensor, State]:
        """Output of the last layer `(T, B, H)` with and without its dropout, and the state."""
        if tokens.dim() not in (1, 2) or tokens.dtype not in (torch.int32, torch.int64):
            raise ValueError(
                f"expected tokens to be int32 or int64 of shape (T, B) or (T,), got {tokens.dtype} of shape "
                f"{tuple(tokens.shape)}"
            )
        if state is not None and len(state) != len(self.layers):
            raise ValueError(f"expected the state of {len(self.layers)} layers, got {len(state)}")
        after = []
        dropped = raw = self.input_dropout(self.embedding(tokens, self.decoder.bias.dtype))
        for n in range(len(self.layers)):
            layer, before = self._layer(n), None if state is None else state[n]
            raw, own = layer(dropped, before) if step is None else step(layer, dropped, before)
            after.append(own)
            dropped = (self.layer_dropout if n < len(self.layers) - 1 else self.output_dropout)(raw)
        return dropped, raw, tuple(after)

    def _decode(self, hidden: Tensor) -> Tensor:
        return linear(hidden, self.embedding.weight if self.tied else self.decoder.weight, self.decoder.bias)  # type: ignore[arg-type]

    def _nll(self, logits: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
        """Of logits `(N, V)` and targets `(N,)`, in float32 or wider."""
        return cross_entropy(logits.to(wide(logits.dtype)), targets.long(), reduction=reduction)

    def _penalties(self, dropped: Tensor, raw: Tensor) -> dict[str, Tensor]:
        penalties = {}
        if self.activation_penalty:
            penalties["activation"] = self.activation_penalty * dropped.to(wide(dropped.dtype)).square().mean()
        if self.change_penalty and len(raw) > 1:  # one step changes nothing, and the mean of nothing is no number
            penalties["change"] = self.change_penalty * raw.to(wide(raw.dtype)).diff(dim=0).square().mean()
        return penalties

    def _losses(self, stream: Text, batch: int, chunk: int) -> Tensor:
        """`token_losses` in float32 or wider."""
        chunk, batch = expect_size("chunk", chunk), expect_size("batch", batch)
        tokens = self._tokens(stream, 2 * batch)
        columns = in_lanes(tokens, batch).to(self.device)
        last = len(columns) - 1
        losses = []
        state = None
        with evaluating(self):
            for start in range(0, last, chunk):
                stop = min(start + chunk, last)
                logits, state = self(columns[start:stop], state)
                targets = columns[start + 1 : stop + 1].flatten()
                losses.append(self._nll(logits.flatten(0, 1), targets, "none").view(-1, batch))
            return torch.cat(losses).T.flatten().cpu()

    def _tokens(self, text: Text, at_least: int) -> Tensor:
        tokens = tokens_of(text, self.words, self.vocabulary)
        if len(tokens) < at_least:
            raise ValueError(f"expected a text of at least {at_least} words, got {len(tokens)}")
        return tokens

    def _layer(self, n: int) -> Recurrent:
        layer = self.layers[n]
        assert isinstance(layer, Recurrent)
        return layer

    @torch.no_grad()
    def _initialise(self, bound: float) -> None:
        self.embedding.reset_parameters(bound)
        if not self.tied:
            self.decoder.weight.uniform_(-bound, bound)
        self.decoder.bias.zero_()


def _expect_size(vocabulary: Words, words: int) -> Words:
    if len(vocabulary) != words:
        raise ValueError(f"expected a vocabulary of {words} words, as the saved model has, got {len(vocabulary)}")
    return vocabulary


def _expect_words(vocabulary: Any) -> Words:
    if not isinstance(vocabulary, Words):
        raise TypeError(
            "expected vocabulary to be a number of words or an object with len, encode and decode, got "
            f"{type(vocabulary).__name__}"
        )
    return vocabulary
