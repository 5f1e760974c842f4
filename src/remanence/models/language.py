"""Language models that predict the next word, with chosen timescales."""

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
from .modes import evaluating
from .stack import StartingBias, make_layers, sizes, spread
from .states import detached
from .text import Text, Words, tokens_of, words_of

State = tuple[Any, ...]
"""The state of every layer, first to last, each as the layer returns it."""
Record = dict[str, Tensor]


class Loss(NamedTuple):
    """The loss of a chunk of text, and the state for the next one."""

    nll: Tensor
    """Mean negative log likelihood of the targets, a scalar, float32 or wider."""
    state: State
    """The state after the last step, detached, from which the next chunk starts."""
    penalties: dict[str, Tensor]
    """Regularisation terms in training, already scaled: `activation` and `change`."""

    @property
    def total(self) -> Tensor:
        """The value to minimise: `nll` plus all penalties."""
        total = self.nll
        for penalty in self.penalties.values():
            total = total + penalty
        return total


class LanguageModel(Pretrained):
    """AWD-LSTM language model with any gate, timescales and engine.

    An embedding, a stack of recurrent layers, and a softmax that shares the embedding (`tie`) or has its own weights.
    It is regularised as in Merity, Keskar & Socher, "Regularizing and optimizing LSTM language models" (ICLR 2018):
    word dropout, locked dropout (one mask per chunk), weight drop on the recurrent matrices (gradients reach the stored
    matrix), and penalties on large or quickly changing activations of the last layer (AR and TAR). The defaults are
    those for the Penn Treebank; `language_model(name, vocabulary)` makes the models of the papers.

    Args:
        vocabulary: Number of words V, or a vocabulary (with `len`, `encode` and `decode`), which also lets methods take
            text.
        embedding_size: Length of the embedding vectors; None for one-hot vectors of length V.
        hidden_size: Units of every layer, or one number per layer. With `tie` and a single number, the last layer has
            embedding_size units.
        num_layers: Number of layers.
        layer: Type of the layers: "lstm", "gru", "janet" or "nru".
        gate: Forget gate of all layers, a name or a `remanence.gates.Gate`.
        input_gate: "separate", "coupled" or None, see `remanence.LSTM`.
        forget_bias: Initial forget bias of layers without timescales: a number, "matched" or None, see
            `remanence.LSTM`; "uniform" draws all biases from U(-1/sqrt(H), 1/sqrt(H)) for any gate.
        timescales: An object of `remanence.timescales` for all layers, or a list with one (or None) per layer.
        tie: Whether the softmax shares the embedding matrix. The last layer must then have embedding_size units.
        word_dropout: Probability of dropping a word of the vocabulary.
        input_dropout: Probability of locked dropout on the embeddings.
        layer_dropout: Probability of locked dropout between layers.
        output_dropout: Probability of locked dropout on the output of the last layer.
        weight_drop: Probability of dropping an entry of a recurrent matrix, drawn once per forward call.
        activation_penalty: Factor of the mean square of the last layer's output, after dropout (AR).
        change_penalty: Factor of the mean square of its change from step to step, before dropout (TAR).
        initial_range: Embedding and softmax weights are initialised from U(-r, r), the softmax bias to zero; None
            keeps torch's initialisation.
        frozen_recurrent: Never train the recurrent matrices, to reproduce results of code in which they did not train.
        engine: "auto", or the name of an engine, see `remanence.engines`.
        device: Device of the parameters.
        dtype: Floating-point type of the parameters.

    Call it as `logits, state = model(tokens, state)`. `remanence.timescales.of(model)` and `estimate(model, tokens)`
    return one tensor per layer.

    Examples:
        >>> import torch
        >>> import remanence as rm
        >>> model = rm.models.LanguageModel(100, embedding_size=16, hidden_size=32, num_layers=2, gate="fast")
        >>> tokens = torch.randint(100, (21, 4))  # 21 steps of 4 texts
        >>> logits, state = model(tokens)
        >>> logits.shape
        torch.Size([21, 4, 100])
        >>> loss = model.loss(tokens[:-1], tokens[1:])
        >>> loss.total.backward()
        >>> sorted(loss.penalties)
        ['activation', 'change']
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
        """Constructor arguments of this model, without vocabulary, device and dtype."""
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
            self.decoder.register_parameter("weight", None)  # the softmax uses the embedding matrix
        if initial_range is not None:
            self._initialise(expect_number("initial_range", initial_range))

    # Structure.

    @property
    def tied(self) -> bool:
        """Whether the softmax shares the embedding matrix."""
        return bool(self.arguments["tie"])

    @property
    def device(self) -> torch.device:
        """Device of the model."""
        return self.decoder.bias.device

    @property
    def gate(self) -> Gate:
        """The forget gate of all layers."""
        return self._layer(0).gate

    def __getattr__(self, name: str) -> Any:
        if name == "gate":  # the property raised: raise its error, not torch's "no attribute"
            return self._layer(0).gate
        return super().__getattr__(name)

    def forget_biases(self) -> list[tuple[Tensor, ...]]:
        """The total biases of the gate for every layer: one `(H,)` tensor per row of the gate."""
        return [biases for n in range(len(self.layers)) for biases in self._layer(n).forget_biases()]

    # Running.

    def forward(self, tokens: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Predict the next word after every token.

        Args:
            tokens: Token ids, integers `(T, B)`, or `(T,)` for one text.
            state: Initial state, as returned by a previous call; zeros if None.

        Returns:
            Logits `(T, B, V)`, and the state after the last step: a tuple with the state of every layer.

        Raises:
            ValueError: The tokens are not int32 or int64 of one of these shapes, or the state does not fit.
        """
        dropped, _, state = self._run(tokens, state)
        return self._decode(dropped), state

    def penalised(self, tokens: Tensor, state: State | None = None) -> tuple[Tensor, State, dict[str, Tensor]]:
        """Logits and state as from `forward`, and in training the penalties, already scaled, see `Loss`.

        Args:
            tokens: Token ids `(T, B)` or `(T,)`.
            state: Initial state; zeros if None.
        """
        dropped, raw, state = self._run(tokens, state)
        return self._decode(dropped), state, self._penalties(dropped, raw) if self.training else {}

    def compile(self, *arguments: Any, **keywords: Any) -> None:
        """Compile the model in place, as `torch.nn.Module.compile`, and also `penalised`, which training calls."""
        super().compile(*arguments, **keywords)
        self.penalised = torch.compile(self.penalised, *arguments, **keywords)  # type: ignore[method-assign]

    def loss(self, tokens: Tensor, targets: Tensor, state: State | None = None) -> Loss:
        """Negative log likelihood of the targets and, in training, the penalties.

        Args:
            tokens: Token ids `(T, B)`, or `(T,)` for one text.
            targets: The next token after each of them, in the same shape.
            state: Initial state, as returned by a previous call; zeros if None.

        Returns:
            Loss, detached state, and penalties.
        """
        if targets.shape != tokens.shape:
            raise ValueError(f"expected targets of shape {tuple(tokens.shape)}, got {tuple(targets.shape)}")
        logits, state, penalties = self.penalised(tokens, state)
        return Loss(self._nll(logits.flatten(0, -2), targets.flatten()), detached(state), penalties)

    def watch(self, input: Inputs, state: Any = None, dt: Any = None) -> tuple[list[Record], Any, Tensor | None]:
        """Run on the loop engine and record every gate.

        Args:
            input: Token ids `(T, B)`, or `(T,)` for one text.
            state: Initial state, as returned by a previous call; zeros if None.
            dt: Must be None, because words come at unit steps.

        Returns:
            A mapping from names to `(T, B, H)` per layer, as from `remanence.record` (B is 1 for one text), the state
            after the last step, and None (all texts have T steps).
        """
        if dt is not None:
            raise ValueError("expected no dt, got one: words come at unit steps")
        if not isinstance(input, Tensor) or input.dim() not in (1, 2):
            raise ValueError(f"expected integers of shape (T, B) or (T,), got {getattr(input, 'shape', type(input))}")
        records: list[Record] = []

        def keep(layer: Recurrent, values: Tensor, before: Any) -> tuple[Tensor, Any]:
            (record,), after, _ = layer.watch(values, before)
            records.append(record)
            return record["hidden"].squeeze(1) if input.dim() == 1 else record["hidden"], after

        _, _, after = self._run(input, state, keep)
        return records, after, None

    # Measuring.

    def token_losses(self, stream: Text, *, batch: int = 1, chunk: int = 70) -> Tensor:
        """Negative log likelihood of every word of a text except the first, given all words before it.

        Computed in evaluation mode. The state is carried from chunk to chunk; the chunk length only affects rounding.

        Args:
            stream: A text, its words or their token ids `(N,)`.
            batch: Number of equal parts to process in parallel, each from a zero state; 1 for the text as a whole.
            chunk: Steps per forward call.

        Returns:
            float32 `(N - 1,)` on the CPU: entry n is the loss of word n + 1. With several parts, their losses are
            concatenated, each without its first word; words left over at the end are dropped.
        """
        return self._losses(stream, batch, chunk).float()

    def perplexity(self, stream: Text, batch: int = 1, chunk: int = 70) -> float:
        """exp of the mean of `token_losses`. Its logarithm to base 2 is the bits per word, or per character.

        Args:
            stream: A text, its words or their token ids `(N,)`.
            batch: Number of equal parts to process in parallel, each from a zero state.
            chunk: Steps per forward call.
        """
        return math.exp(float(self._losses(stream, batch, chunk).double().mean()))

    def activations(
        self,
        text: Text,
        *,
        state: State | None = None,
        timescales: Sequence[Tensor] | None = None,
        chunk: int = 70,
    ) -> Activations:
        """Hidden and cell states of every unit at every word, with the units of a layer sorted by timescale.

        Args:
            text: A text, its words or their token ids `(N,)`.
            state: Initial state, such as the `state` of the previous activations; zeros if None.
            timescales: Timescales to sort by, `(H,)` per layer. The default is those of the biases, or, for gates
                without a bias timescale (power_law), those estimated from the forget values on this text.
            chunk: Steps per forward call; only affects memory.

        Returns:
            Tokens, words, the activations of every layer, and the final state.

        Examples:
            >>> import remanence as rm
            >>> model = rm.models.LanguageModel(100, embedding_size=16, hidden_size=32, num_layers=1, tie=False)
            >>> read = model.activations([1, 2, 3, 4])
            >>> read.layers[0].hidden.shape, read.layers[0].timescales.shape
            (torch.Size([4, 32]), torch.Size([32]))
        """
        tokens = self._tokens(text, 1)
        columns, chunk = tokens.unsqueeze(1).to(self.device), expect_size("chunk", chunk)
        chunks = [columns[start : start + chunk] for start in range(0, len(columns), chunk)]
        with evaluating(self):
            layers, after = layers_reading(self, chunks, state, timescales)
        words = None if self.vocabulary is None else words_of(tokens.tolist(), self.vocabulary)
        return Activations(tokens, words, layers, after)

    # Generating text.

    def generate(
        self,
        prompt: Text = (),
        length: int = 100,
        *,
        temperature: float = 1.0,
        top_k: int | None = None,
        generator: torch.Generator | None = None,
    ) -> Iterator[Any]:
        """Sample words that continue a prompt, one by one.

        Args:
            prompt: A text, its words or their token ids; empty to start after the end of a sentence.
            length: Number of words to sample.
            temperature: Divides the logits; 0 always takes the most likely word.
            top_k: Sample from the k most likely words only.
            generator: Random number generator; None for torch's global one. A CPU generator works for every device.

        Yields:
            Words if the model has a vocabulary, else token ids.

        Examples:
            >>> import remanence as rm
            >>> model = rm.models.LanguageModel(100, embedding_size=16, hidden_size=32, num_layers=1)
            >>> len(list(model.generate([1, 2, 3], length=5)))
            5
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

    # Saving.

    def save(self, path: str | Path) -> None:
        """Write weights, arguments and vocabulary to one safetensors file, atomically.

        Args:
            path: The file.
        """
        saving.save(Path(path), self.state_dict(), self.arguments, self.words, self.vocabulary, self.decoder.bias.dtype)

    @classmethod
    def load(
        cls, path: str | Path, *, vocabulary: Words | None = None, device: torch.device | str | None = None
    ) -> Self:
        """Load a model that `save` wrote. Nothing is unpickled.

        Args:
            path: The file.
            vocabulary: A vocabulary to use instead of the one in the file.
            device: Device to load the model to.

        Raises:
            ValueError: The file is missing, or is not a language model of this package.
        """
        weights, arguments, words, own, dtype = saving.load(Path(path))
        known = own if vocabulary is None else vocabulary
        with torch.random.fork_rng(devices=[]):  # the weights drawn here are overwritten
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

    # Private methods.

    def _run(
        self,
        tokens: Tensor,
        state: State | None,
        step: Callable[[Recurrent, Tensor, Any], tuple[Tensor, Any]] | None = None,
    ) -> tuple[Tensor, Tensor, State]:
        """Output of the last layer `(T, B, H)` with and without dropout, and the state."""
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
        """Negative log likelihood of targets `(N,)` under logits `(N, V)`, in float32 or wider."""
        return cross_entropy(logits.to(wide(logits.dtype)), targets.long(), reduction=reduction)

    def _penalties(self, dropped: Tensor, raw: Tensor) -> dict[str, Tensor]:
        penalties = {}
        if self.activation_penalty:
            penalties["activation"] = self.activation_penalty * dropped.to(wide(dropped.dtype)).square().mean()
        if self.change_penalty and len(raw) > 1:  # with one step the mean would be NaN
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
