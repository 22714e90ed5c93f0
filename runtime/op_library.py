"""Whether this process has the operators that an artifact calls."""

from collections.abc import Sequence

import torch

from lensbox.common.errors import ArtifactError


def require_ops(artifact: str, needed: Sequence[str]) -> None:
    """Raises ArtifactError, naming the artifact, unless each schema of `needed` is registered.

    A registered schema may have more arguments than the needed one, if they have defaults. Loads the op
    library of `lensbox.ops`, and raises what that raises (OpLibraryError).
    """
    # Here and not above, so that whoever imports the runtime can report a library that does not load.
    import lensbox.ops

    for schema in needed:
        registered = registered_schemas(op_name(schema))
        if not registered:
            raise ArtifactError(
                f"{artifact} needs the operator {schema}, which is not registered: load the library that has "
                f"it (torch.ops.load_library) before the artifact; {lensbox.ops.library_path()} is loaded"
            )
        try:
            fits = any(schema_accepts(candidate, schema) for candidate in registered)
        except Exception as error:  # torch's parser of schemas raises several kinds
            raise ArtifactError(
                f"{artifact} needs the operator {schema}, which torch cannot read: {error}"
            ) from error
        if not fits:
            raise ArtifactError(
                f"{artifact} needs the operator {schema}, but the loaded library has {registered[0]}: "
                "export the artifact again, or load the library it was made with"
            )


def op_name(schema: str) -> str:
    """The operator of a schema, without its overload: 'ns::op' of 'ns::op.out(Tensor x) -> Tensor'."""
    return schema.split("(")[0].split(".")[0]


def registered_schemas(op_name: str) -> "list[torch._C.FunctionSchema]":
    """The schemas of every overload that this process knows of an operator such as 'lensbox::giou'."""
    return list(torch._C._jit_get_schemas_for_operator(op_name))


def schema_accepts(schema: "torch._C.FunctionSchema", wanted: str) -> bool:
    """Whether a call written for the schema `wanted` is valid for `schema`: it may have more defaults."""
    parsed = torch._C.parse_schema(wanted)
    return bool(schema.is_backward_compatible_with(parsed))  # type: ignore[attr-defined]  # (not in the stub)
