"""What the commands of the program list, as objects."""

from __future__ import annotations

import html
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

from ._program import PathLike, run, run_json

# The largest number of nodes that a notebook shows.
_MAX_SHOWN = 1000


@dataclass(frozen=True)
class Node:
    """A group or an array of a hierarchy."""

    path: str
    """The key below the root; "" is the root."""
    node_type: str
    """"group", "array", "directory" (without metadata) or "broken"."""
    shape: Optional[Tuple[int, ...]]
    """The shape of an array."""
    data_type: Optional[str]
    """The data type of an array in NumPy's notation, such as "<f4"."""
    members: Mapping[str, Any]
    """All members that `zarrfs tree --json` prints."""

    @property
    def name(self) -> str:
        """The last component of the path."""
        return self.path.rpartition("/")[2]

    @property
    def is_array(self) -> bool:
        """Whether the node is an array."""
        return self.node_type == "array"

    def __str__(self) -> str:
        name = self.name or "/"
        if not self.is_array:
            return name if self.node_type == "group" else f"{name} ({self.node_type})"
        names = self.members.get("dimension_names") or []
        sizes = self.shape or ()
        labels = [f"{name}: {size}" if name else str(size) for name, size in zip(names, sizes)]
        shape = ", ".join(labels or map(str, sizes))
        return f"{name} ({shape}) {self.members.get('type_name') or self.data_type}"


@dataclass(frozen=True)
class Tree:
    """The groups and arrays of a source, each before those below it. A notebook shows it as a tree."""

    source: str
    nodes: List[Node]
    totals: Mapping[str, Any]
    """`groups`, `arrays` and, if they are known, `size_bytes`, `stored_bytes` and `ratio`."""

    @property
    def arrays(self) -> List[Node]:
        """The arrays."""
        return [node for node in self.nodes if node.is_array]

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    def __len__(self) -> int:
        return len(self.nodes)

    def __getitem__(self, path: str) -> Node:
        """Returns the node at a key. Raises KeyError if there is none."""
        path = path.strip("/")
        for node in self.nodes:
            if node.path == path:
                return node
        raise KeyError(path)

    def __repr__(self) -> str:
        groups, arrays = self.totals.get("groups", 0), self.totals.get("arrays", 0)
        return f"<zarrfs.Tree of {self.source!r}: groups: {groups}, arrays: {arrays}>"

    def __str__(self) -> str:
        lines = [self.source]
        lines += ["  " * (node.path.count("/") + 1) + str(node) for node in self.nodes if node.path]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        below: Dict[str, List[Node]] = {}
        for node in self.nodes[:_MAX_SHOWN]:
            if node.path:
                below.setdefault(node.path.rpartition("/")[0], []).append(node)
        text = f"<div><strong>{html.escape(self.source)}</strong>{_html_list(below, '')}"
        more = len(self.nodes) - _MAX_SHOWN
        return text + (f"<em>and {more} more</em></div>" if more > 0 else "</div>")


def _html_list(below: Mapping[str, List[Node]], path: str) -> str:
    items = []
    for node in below.get(path, []):
        text = html.escape(str(node))
        if node.path in below:
            text = f"<details open><summary>{text}</summary>{_html_list(below, node.path)}</details>"
        items.append(f"<li>{text}</li>")
    return f"<ul>{''.join(items)}</ul>"


@dataclass(frozen=True)
class View:
    """A file or a directory that shows a node in a format. Of a mount, it is path-like."""

    name: str
    """The name in the directory of views."""
    format: str
    """The word for the format, such as "npy"."""
    description: str
    """What the view contains."""
    path: Optional[Path]
    """The path in the mount; None without a mount."""
    listed: bool
    """Whether the directory of views lists the name."""

    def __fspath__(self) -> str:
        if self.path is None:
            raise TypeError(f"{self.name}: only a view of a mount has a path")
        return str(self.path)


@dataclass(frozen=True)
class MountedSource:
    """A mount on this machine. It is path-like: its mountpoint."""

    source: str
    mountpoint: Path
    pid: Optional[int]
    """The process of the daemon; None if it does not answer this user."""
    uid: Optional[int]
    """The user who has mounted."""

    def __fspath__(self) -> str:
        return str(self.mountpoint)

    def __truediv__(self, name: PathLike) -> Path:
        return self.mountpoint / name

    def unmount(self, lazy: bool = False) -> None:
        """Unmounts. With `lazy`, at once, even if files are open.

        Raises `ZarrfsError`, of kind "busy" if a program uses the mount.
        """
        run("umount", *(["--lazy"] if lazy else []), "--", self.mountpoint)


def tree(source: PathLike, *arguments: PathLike) -> Tree:
    """Returns the nodes of a source. `arguments` are those of the program."""
    document = run_json("tree", *arguments, "--", source)
    nodes = []
    for members in document["nodes"]:
        shape = members.get("shape")
        nodes.append(
            Node(
                path=members["path"],
                node_type=members["node_type"],
                shape=None if shape is None else tuple(shape),
                data_type=members.get("data_type"),
                members=members,
            )
        )
    return Tree(document["source"], nodes, document["totals"])


def views(source: PathLike, key: str, *arguments: PathLike) -> List[View]:
    """Returns the views of a node. `arguments` are those of the program."""
    document = run_json("views", *arguments, "--", source, *([key] if key else []))
    found = []
    for view in document["views"]:
        path = view.get("path")
        found.append(
            View(
                name=view["name"],
                format=view["format"],
                description=view["description"],
                path=None if path is None else Path(os.fspath(path)),
                listed=view["listed"],
            )
        )
    return found


def mounts() -> List[MountedSource]:
    """Returns the mounts of zarrfs that this process sees."""
    found = []
    for mount in run_json("mounts")["mounts"]:
        mountpoint = Path(mount["mountpoint"])
        found.append(MountedSource(mount["source"], mountpoint, mount.get("pid"), mount.get("uid")))
    return found
