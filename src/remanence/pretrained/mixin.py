"""`save_pretrained`, `from_pretrained` and `push_to_hub`, with the names and arguments of huggingface_hub's mixin.

That mixin itself would have to be imported with this package, and would write arguments that it cannot read again, such
as gates. A folder on a disk needs nothing but this package.
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
"""Classes by the name that a folder has of them; no other is made because a file says so."""

TORCH: dict[str, type[nn.RNNBase]] = {"torch.nn.LSTM": nn.LSTM, "torch.nn.GRU": nn.GRU}
"""Layers of torch that a model may have."""
ARGUMENTS_OF_TORCH = (
    *("input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional"),
    "proj_size",
)


class Pretrained(nn.Module):
    """A module that can be written to a folder and read again.

    A subclass says what makes it once more, and is registered by `register`.
    """

    def pretrained_arguments(self) -> dict[str, Any]:
        """What makes this model once more, but for weights, device and dtype: values that `plain` takes."""
        raise NotImplementedError

    @classmethod
    def from_arguments(cls, arguments: dict[str, Any], device: torch.device | str) -> Self:
        """A model with new weights from what `pretrained_arguments` gave."""
        return cls(**arguments, device=device)

    def recurrent_layers(self) -> Sequence[nn.Module]:
        """The recurrent layers in it, first to last."""
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
            save_directory: the folder; made if it is not there.
            repo_id: name of the model on the Hugging Face Hub; the name of the folder by default.
            push_to_hub: whether to put it there, too.
            push_to_hub_kwargs: arguments of `push_to_hub`.

        Returns:
            What `push_to_hub` returns, where it was asked for.
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
        """The model in a folder that `save_pretrained` wrote, or on the Hugging Face Hub, in evaluation mode.

        Args:
            pretrained_model_name_or_path: a folder, or `organisation/name` on the Hub.
            force_download: download again what is there.
            token: for models on the Hub that are not public.
            cache_dir: where downloads are kept; by default where huggingface_hub keeps them.
            local_files_only: download nothing.
            revision: branch, tag or commit on the Hub.
            device: where to put it.
            changes: arguments that differ from those it was saved with, such as `dropout` or `engine`.
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
        """Put the model on the Hugging Face Hub, with a card if there is none yet.

        Args:
            repo_id: `organisation/name`.
            commit_message: says what this is.
            private: whether a new repository is private.
            token: of somebody who may write there; by default the one of `hf auth login`.
            branch: where to put it; main by default.
            create_pr: whether as a pull request.

        Returns:
            The address of the commit.
        """
        api = package("push_to_hub").HfApi(token=token)
        with tempfile.TemporaryDirectory() as temporary:
            self.save_pretrained(temporary, repo_id=repo_id)  # first: a model that cannot be saved makes no repository
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
    """Let folders hold models of these classes, which have the name of the class there."""
    KNOWN.update({kind.__name__: kind for kind in kinds})


def describe(model: Pretrained | nn.RNNBase) -> dict[str, Any]:
    """Class and arguments of a model, or of a layer of torch in one, as plain data."""
    kind = type(model)
    if is_parametrized(model):
        raise ValueError(
            f"expected weights as they are, got a {kind.__name__} with parametrizations; "
            "torch.nn.utils.parametrize.remove_parametrizations takes them off"
        )
    for name, layer in TORCH.items():
        if kind is layer:
            names = [one for one in ARGUMENTS_OF_TORCH if one != "proj_size" or model.proj_size]  # GRUs have none
            return {"class": name, "arguments": {one: getattr(model, one) for one in names}}
    if not isinstance(model, Pretrained) or KNOWN.get(kind.__name__) is not kind:
        raise ValueError(
            f"expected a model of one of the classes {', '.join(KNOWN)}, got {kind.__name__}; "
            f"remanence.pretrained.register({kind.__name__}) adds it, here and before loading"
        )
    return {"class": kind.__name__, "arguments": {n: plain(value) for n, value in model.pretrained_arguments().items()}}


def make(description: Mapping[str, Any], device: torch.device | str, changes: Mapping[str, Any] | None = None) -> Any:
    """The model that was described, with new weights."""
    if description["class"] in list(TORCH):  # whatever a file says it is
        return TORCH[description["class"]](**description["arguments"], device=device)
    kind = lookup("class of a saved model", description["class"], KNOWN)
    arguments = {name: restored(value) for name, value in description["arguments"].items()}
    for name in changes or {}:
        if name not in arguments:
            raise ValueError(f"expected an argument of {kind.__name__} ({', '.join(arguments)}), got {name!r}")
    return kind.from_arguments({**arguments, **(changes or {})}, device)


def opened(path: Path, changes: Mapping[str, Any] | None = None, wanted: type[Any] = Pretrained) -> Any:
    """The model in a folder, in evaluation mode, on the CPU.

    Args:
        path: the folder.
        changes: arguments that differ from those it was saved with.
        wanted: what it must be one of.
    """
    description, weights = folder.read(path)
    try:
        model = _made(description, changes)
    except (LookupError, AttributeError, TypeError) as error:
        raise ValueError(
            f"expected a description of a model in {path / folder.CONFIG}, got one that makes none "
            f"({type(error).__name__}: {error})"
        ) from None
    if not isinstance(model, wanted):
        raise ValueError(f"expected a saved {wanted.__name__}, got {path} with a {type(model).__name__}")
    _expect_fitting(model, weights, f"{path / folder.WEIGHTS}")
    model.load_state_dict(weights, assign=True)
    return model.eval()


def _made(description: Mapping[str, Any], changes: Mapping[str, Any] | None = None) -> Pretrained:
    """Without memory for weights, whatever sizes a file asks for, and without a draw from torch's generator."""
    with torch.random.fork_rng(devices=[]):
        made: Pretrained = make(description, "meta", changes)
    return made


def _expect_fitting(model: Pretrained, weights: Mapping[str, Tensor], place: str) -> None:
    """Refuse weights that are not those of a model."""
    expected = {name: tuple(weight.shape) for name, weight in model.state_dict().items()}
    found = {name: tuple(weight.shape) for name, weight in weights.items()}
    different = [name for name in {**expected, **found} if expected.get(name) != found.get(name)]
    if different:
        name = different[0]
        raise ValueError(
            f"expected {name} of shape {expected.get(name)} as in a {type(model).__name__} of these arguments, "
            f"got {found.get(name)} in {place}"
        )
    strange = [name for name, weight in weights.items() if not weight.is_floating_point()]
    if strange:
        raise ValueError(
            f"expected weights to be floating-point numbers, got {strange[0]} of {weights[strange[0]].dtype}"
        )
