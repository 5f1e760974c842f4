"""`save_pretrained`, `from_pretrained` and `push_to_hub`, with the names and arguments of huggingface_hub's mixin.

That mixin itself would be an import-time dependency, and could not restore some of the arguments that it writes, such
as gates. Saving to a local folder needs only this package.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from ..names import lookup
from . import folder
from .arguments import plain, restored
from .card import card
from .hub import local_folder, package

KNOWN: dict[str, type[Pretrained]] = {}
"""Classes that a saved model may be of, by name. Loading never makes an object of any other class."""

TORCH: dict[str, type[nn.RNNBase]] = {"torch.nn.LSTM": nn.LSTM, "torch.nn.GRU": nn.GRU}
"""Torch layers that a saved model may contain."""
ARGUMENTS_OF_TORCH = (
    *("input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional"),
    "proj_size",
)


class Pretrained(nn.Module):
    """Base class of modules that can be saved to a folder and loaded again.

    All layers and models of this package are of this class. A custom subclass defines `pretrained_arguments` and is
    registered with `register`.

    Examples:
        >>> import remanence as rm
        >>> layer = rm.LSTM(8, 32, gate="fast")
        >>> layer.save_pretrained("my-lstm")
        >>> rm.LSTM.from_pretrained("my-lstm")
        LSTM(8, 32, gate=Fast())
    """

    def pretrained_arguments(self) -> dict[str, Any]:
        """Constructor arguments that recreate this model, without device and dtype: values that `plain` takes."""
        raise NotImplementedError

    @classmethod
    def from_arguments(cls, arguments: dict[str, Any], device: torch.device | str) -> Self:
        """Make a model with new weights from the result of `pretrained_arguments`.

        Args:
            arguments: Constructor arguments.
            device: Device of the parameters.
        """
        return cls(**arguments, device=device)

    def recurrent_layers(self) -> Sequence[nn.Module]:
        """The recurrent layers of the model, first to last."""
        return [self]

    def save_pretrained(
        self,
        save_directory: str | Path,
        *,
        repo_id: str | None = None,
        push_to_hub: bool = False,
        **push_to_hub_kwargs: Any,
    ) -> str | None:
        """Write weights (safetensors), arguments (JSON) and a model card into a folder.

        Args:
            save_directory: The folder, created if it does not exist.
            repo_id: Name of the model on the Hugging Face Hub; default: the name of the folder.
            push_to_hub: Whether to upload it to the Hub as well.
            push_to_hub_kwargs: Arguments of `push_to_hub`.

        Returns:
            The URL of the commit with `push_to_hub`, else None.

        Raises:
            ValueError: The model cannot be recreated from its arguments, for example because its class or gate is not
                registered, or the folder cannot be written.
        """
        path = Path(save_directory).expanduser()
        name = repo_id or path.resolve().name
        description, weights = describe(self), self.state_dict()
        _expect_fitting(_made(description), weights, "the model")
        folder.write(path, description, weights, card(self, self.recurrent_layers(), name))
        return self.push_to_hub(name, **push_to_hub_kwargs) if push_to_hub else None

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: str | Path,
        *,
        force_download: bool = False,
        token: str | bool | None = None,
        cache_dir: str | Path | None = None,
        local_files_only: bool = False,
        revision: str | None = None,
        device: torch.device | str | None = None,
        **changes: Any,
    ) -> Self:
        """Load a model from a folder that `save_pretrained` wrote, or from the Hugging Face Hub, in evaluation mode.

        Args:
            pretrained_model_name_or_path: A folder, or `organisation/name` on the Hub.
            force_download: Download again even if there is a cached copy.
            token: Access token for private models on the Hub.
            cache_dir: Folder for downloads; default: that of huggingface_hub.
            local_files_only: Do not download anything.
            revision: Branch, tag or commit on the Hub.
            device: Device to load the model to.
            changes: Arguments that override those it was saved with, such as `dropout` or `engine`.

        Raises:
            ValueError: There is no such model, it is of another class, or its weights do not fit its arguments.
        """
        path = local_folder(
            pretrained_model_name_or_path,
            force_download=force_download,
            token=token,
            cache_dir=cache_dir,
            local_files_only=local_files_only,
            revision=revision,
        )
        model: Self = opened(path, changes, cls)
        return model if device is None else model.to(device)

    def push_to_hub(
        self,
        repo_id: str,
        *,
        commit_message: str = "Push model using remanence.",
        private: bool | None = None,
        token: str | None = None,
        branch: str | None = None,
        create_pr: bool | None = None,
    ) -> str:
        """Upload the model to the Hugging Face Hub, with a model card if there is none yet.

        Args:
            repo_id: `organisation/name`.
            commit_message: Message of the commit.
            private: Whether a new repository is private.
            token: Access token with write permission; default: that of `hf auth login`.
            branch: Branch to commit to; default: main.
            create_pr: Whether to open a pull request instead.

        Returns:
            The URL of the commit.
        """
        api = package("push_to_hub").HfApi(token=token)
        with tempfile.TemporaryDirectory() as temporary:
            self.save_pretrained(temporary, repo_id=repo_id)  # first, so that a failure creates no repository
            repo_id = api.create_repo(repo_id=repo_id, private=private, exist_ok=True).repo_id
            if api.file_exists(repo_id, folder.CARD, revision=branch):
                (Path(temporary) / folder.CARD).unlink()
            commit = api.upload_folder(
                repo_id=repo_id,
                repo_type="model",
                folder_path=temporary,
                commit_message=commit_message,
                revision=branch,
                create_pr=create_pr,
            )
        return str(commit)


def register(*kinds: type[Pretrained]) -> None:
    """Register classes, so that models of them can be saved and loaded. They are stored by the name of the class.

    Args:
        kinds: Subclasses of `Pretrained`.

    Examples:
        >>> import remanence as rm
        >>> class MyLSTM(rm.LSTM):
        ...     pass
        >>> rm.pretrained.register(MyLSTM)
        >>> MyLSTM(8, 32).save_pretrained("mine")
        >>> type(MyLSTM.from_pretrained("mine")).__name__
        'MyLSTM'
        >>> del rm.pretrained.KNOWN["MyLSTM"]
    """
    KNOWN.update({kind.__name__: kind for kind in kinds})


def describe(model: Pretrained | nn.RNNBase) -> dict[str, Any]:
    """Class and arguments of a model, or of a torch layer in one, as plain data.

    Args:
        model: The model or layer.

    Raises:
        ValueError: The class or gate is not registered, or the model has parametrizations.

    Examples:
        >>> import torch
        >>> import remanence as rm
        >>> description = rm.pretrained.describe(torch.nn.GRU(8, 32))
        >>> description["class"], description["arguments"]["hidden_size"]
        ('torch.nn.GRU', 32)
    """
    kind = type(model)
    if is_parametrized(model):
        raise ValueError(
            f"expected weights without parametrizations, got a {kind.__name__} with some; remove them with "
            "torch.nn.utils.parametrize.remove_parametrizations"
        )
    for name, layer in TORCH.items():
        if kind is layer:
            names = [one for one in ARGUMENTS_OF_TORCH if one != "proj_size" or model.proj_size]  # not of a GRU
            return {"class": name, "arguments": {one: getattr(model, one) for one in names}}
    if not isinstance(model, Pretrained) or KNOWN.get(kind.__name__) is not kind:
        raise ValueError(
            f"expected a model of one of the classes {', '.join(KNOWN)}, got {kind.__name__}; "
            f"register it with remanence.pretrained.register({kind.__name__}), here and before loading"
        )
    return {"class": kind.__name__, "arguments": {n: plain(value) for n, value in model.pretrained_arguments().items()}}


def make(description: Mapping[str, Any], device: torch.device | str, changes: Mapping[str, Any] | None = None) -> Any:
    """Make the model of a description, with new weights.

    Args:
        description: The result of `describe`.
        device: Device of the parameters.
        changes: Arguments that override those of the description.

    Raises:
        ValueError: The class is unknown, or it has no such argument.

    Examples:
        >>> import remanence as rm
        >>> description = rm.pretrained.describe(rm.LSTM(8, 32, gate="fast"))
        >>> rm.pretrained.make(description, "cpu", {"batch_first": True})
        LSTM(8, 32, batch_first=True, gate=Fast())
    """
    if description["class"] in list(TORCH):  # a file can contain a value of any type
        return TORCH[description["class"]](**description["arguments"], device=device)
    kind = lookup("class of a saved model", description["class"], KNOWN)
    arguments = {name: restored(value) for name, value in description["arguments"].items()}
    for name in changes or {}:
        if name not in arguments:
            raise ValueError(f"expected an argument of {kind.__name__} ({', '.join(arguments)}), got {name!r}")
    return kind.from_arguments({**arguments, **(changes or {})}, device)


def opened(path: Path, changes: Mapping[str, Any] | None = None, wanted: type[Any] = Pretrained) -> Any:
    """Load the model in a folder, in evaluation mode, on the CPU.

    Args:
        path: The folder.
        changes: Arguments that override those it was saved with.
        wanted: Class that the model must be an instance of.

    Raises:
        ValueError: There is no such model, it is of another class, or its weights do not fit its arguments.

    Examples:
        >>> from pathlib import Path
        >>> import remanence as rm
        >>> rm.GRU(8, 32).save_pretrained("my-gru")
        >>> rm.pretrained.opened(Path("my-gru"))
        GRU(8, 32)
    """
    description, weights = folder.read(path)
    try:
        model = _made(description, changes)
    except (LookupError, AttributeError, TypeError) as error:
        raise ValueError(
            f"expected the description of a model in {path / folder.CONFIG}, got an invalid one "
            f"({type(error).__name__}: {error})"
        ) from None
    if not isinstance(model, wanted):
        raise ValueError(f"expected a saved {wanted.__name__}, got {path} with a {type(model).__name__}")
    _expect_fitting(model, weights, f"{path / folder.WEIGHTS}")
    model.load_state_dict(weights, assign=True)
    return model.eval()


def _made(description: Mapping[str, Any], changes: Mapping[str, Any] | None = None) -> Pretrained:
    """A model on the meta device: no memory is allocated, and torch's random state does not change."""
    with torch.random.fork_rng(devices=[]):
        made: Pretrained = make(description, "meta", changes)
    return made


def _expect_fitting(model: Pretrained, weights: Mapping[str, Tensor], place: str) -> None:
    """Refuse weights whose names, shapes or dtypes do not fit the model."""
    expected = {name: tuple(weight.shape) for name, weight in model.state_dict().items()}
    found = {name: tuple(weight.shape) for name, weight in weights.items()}
    different = [name for name in {**expected, **found} if expected.get(name) != found.get(name)]
    if different:
        name = different[0]
        raise ValueError(
            f"expected {name} of shape {expected.get(name)} as in a {type(model).__name__} of these arguments, "
            f"got {found.get(name)} in {place}"
        )
    not_floating = [name for name, weight in weights.items() if not weight.is_floating_point()]
    if not_floating:
        raise ValueError(
            f"expected weights to be floating-point numbers, got {not_floating[0]} of {weights[not_floating[0]].dtype}"
        )
