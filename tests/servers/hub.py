#!/usr/bin/env python3
"""The Hub of Hugging Face over a directory: the requests that read repositories and buckets.

    hub.py PORT DIR LOG [--token TOKEN] [--revision NAME=DIR]... [--fault FILE]

`datasets/ada/ocean`, `spaces/ada/ocean`, the model `ada/ocean` and the bucket `buckets/ada/ocean` have the files of
DIR. The branch of DIR is `main`; --revision adds another one, or a commit. The content delivery network is at
PORT + 1, and refuses requests with a token, as signed URLs do. Files of at most 256 bytes are sent by the Hub itself,
after a relative redirect. A page of a listing has 7 names. With --token, other tokens and none are refused. While FILE
has a line `SERVER FAULT`, the `hub` or the `network` fails: with a status and its code, or as FAULTS names. LOG gets a
line for each request: server, method, path, status, bytes, and `token` if it had one.
"""
import argparse
import hashlib
import json
import os
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PAGE = 7
MOST_IN_GIT = 256
TYPES = ("models", "datasets", "spaces")
REPOSITORY = "ada/ocean"
# The network delivers by hash what the Hub has named once, as it does after a branch has moved.
CONTENTS = {}
HASHES = {}


# `short` is half of a content, `other` one of another length, `page` a page for people.
FAULTS = ("short", "other", "page")


class Refused(Exception):
    def __init__(self, status, code, message):
        self.status, self.code, self.message = status, code, message


def hashes(path):
    """The hash of git and the SHA-256 of a file, and its size."""
    stat = os.stat(path)
    known = (path, stat.st_mtime_ns, stat.st_size, stat.st_ino)
    if known not in HASHES:
        with open(path, "rb") as file:
            content = file.read()
        git = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
        sha256 = hashlib.sha256(content).hexdigest()
        CONTENTS[sha256] = content
        HASHES[known] = (git, sha256, len(content))
    return HASHES[known]


class Server(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    name = "hub"
    given = None

    def log_message(self, *_):
        pass

    def handle_request(self):
        self.url = urllib.parse.urlsplit(self.path)
        self.query = dict(urllib.parse.parse_qsl(self.url.query))
        length = int(self.headers.get("Content-Length", 0))
        self.body = self.rfile.read(length) if length else b""
        self.fault = self.current_fault()
        try:
            if self.fault and self.fault not in FAULTS:
                status, _, code = self.fault.partition(" ")
                raise Refused(int(status), code, "a fault of the tests")
            if self.fault == "page":
                return self.answer(200, b"<html><body>Maintenance</body></html>", "text/html")
            self.operate()
        except Refused as refused:
            self.answer(refused.status, b"", X_Error_Code=refused.code, X_Error_Message=refused.message)

    do_GET = do_HEAD = do_POST = handle_request

    def current_fault(self):
        try:
            with open(self.given.fault) as file:
                server, _, fault = file.read().partition(" ")
        except (FileNotFoundError, TypeError):
            return None
        return fault if server == self.name else None

    def answer(self, status, body, kind="text/plain", size=None, **headers):
        length = len(body) if size is None else size
        with open(self.given.log, "a") as log:
            token = " token" if "Authorization" in self.headers else ""
            log.write(f"{self.name} {self.command} {self.path} {status} {length}{token}\n")
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(length))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.fault == "short":
            self.close_connection = True
            body = body[: len(body) // 2]
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_content(self, content, **headers):
        """Sends a content, or the range that is requested."""
        wanted = self.headers.get("Range", "")
        if not wanted.startswith("bytes="):
            return self.answer(200, content, **headers)
        first, last = wanted[len("bytes="):].split("-")
        size = len(content)
        start = int(first) if first else max(0, size - int(last))
        end = min(int(last) + 1, size) if first and last else size
        if start >= size:
            return self.answer(416, b"", Content_Range=f"bytes */{size}", **headers)
        self.answer(206, content[start:end], Content_Range=f"bytes {start}-{end - 1}/{size}", **headers)


class Network(Server):
    name = "network"

    def operate(self):
        if "Authorization" in self.headers:
            raise Refused(400, "InvalidArgument", "Only one auth mechanism allowed")
        content = CONTENTS.get(self.url.path.rsplit("/", 1)[1])
        if content is None:
            raise Refused(403, "AccessDenied", "Request has expired")
        if self.fault == "other":
            content = b"other" + content
        self.send_content(content, ETag='"of-the-network"')


class Hub(Server):
    def operate(self):
        token = self.headers.get("Authorization", "")
        parts = [urllib.parse.unquote(part) for part in self.url.path.strip("/").split("/")]
        if parts[0] == "api":
            return self.api(parts[1:], token)
        kind = parts.pop(0) if parts[0] in TYPES + ("buckets",) else "models"
        if len(parts) < 3 or parts[2] != "resolve":
            raise Refused(404, "", "Not Found")
        self.check(parts[:2], token)
        self.resolve(kind, *self.place(kind, parts[3:]))

    def check(self, repository, token):
        """Refuses repositories that do not exist for the user, in the words of the Hub."""
        allowed = not self.given.token or token == f"Bearer {self.given.token}"
        if "/".join(repository) != REPOSITORY or not allowed:
            if not token:
                raise Refused(401, "RepoNotFound", "Invalid username or password.")
            raise Refused(404, "RepoNotFound", "Repository not found")

    def place(self, kind, parts):
        """The revision, the directory of its files, and the path of a file there."""
        if kind == "buckets":
            return None, self.given.dir, "/".join(parts)
        revision = parts[0]
        if revision not in self.given.revisions:
            raise Refused(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return revision, self.given.revisions[revision], "/".join(parts[1:])

    def file(self, root, path):
        file = os.path.join(root, path)
        if ".." in path.split("/") or not os.path.exists(file):
            raise Refused(404, "EntryNotFound", "Entry not found")
        return file

    @staticmethod
    def commit(revision):
        return revision if len(revision) == 40 else hashlib.sha1(revision.encode()).hexdigest()

    def resolve(self, kind, revision, root, path):
        file = self.file(root, path)
        if os.path.isdir(file):
            raise Refused(404, "EntryNotFound", "Entry not found")
        git, sha256, size = hashes(file)
        headers = {} if revision is None else {"X_Repo_Commit": self.commit(revision)}
        if revision is not None and size <= MOST_IN_GIT:
            name = urllib.parse.quote(revision, safe="")
            return self.redirect(f"/api/resolve-cache/{kind}/{REPOSITORY}/{name}/{urllib.parse.quote(path)}", headers)
        if revision is None:
            refresh = f"http://127.0.0.1:{self.given.port}/api/buckets/{REPOSITORY}/xet-read-token"
            headers |= {"X_Xet_Hash": sha256, "X_Xet_Refresh_Route": refresh}
        else:
            headers["X_Linked_ETag"] = f'"{sha256}"'
        headers["X_Linked_Size"] = str(size)
        self.redirect(f"http://127.0.0.1:{self.given.port + 1}/contents/{sha256}?X-Amz-Signature=of-the-tests", headers)

    def redirect(self, location, headers):
        status = 307 if location.startswith("/") else 302
        self.answer(status, b"", Location=location, **headers)

    def api(self, parts, token):
        verb = parts[0]
        if verb == "resolve-cache":
            kind, revision, path = parts[1], parts[4], "/".join(parts[5:])
            self.check(parts[2:4], token)
            with open(self.file(self.given.revisions[revision], path), "rb") as file:
                content = file.read()
            git = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
            if self.headers.get("If-None-Match") == f'"{git}"':
                return self.answer(304, b"", ETag=f'"{git}"')
            return self.send_content(content, ETag=f'"{git}"', X_Repo_Commit=self.commit(revision))
        kind, repository, rest = verb, parts[1:3], parts[3:]
        self.check(repository, token)
        if kind == "buckets" and not rest:
            return self.reply({"id": REPOSITORY, "private": False, "createdAt": "2026-01-01T00:00:00.000Z", "size": 0,
                               "totalFiles": 0})
        if not rest or rest[0] == "revision":
            revision, *_ = self.place(kind, rest[1:] or ["main"])
            return self.reply({"_id": "1", "id": REPOSITORY, "sha": self.commit(revision), "private": False, "tags": [],
                               "siblings": [], "downloads": 0, "likes": 0})
        revision, root, path = self.place(kind, rest[1:])
        if rest[0] == "tree":
            return self.tree(revision, root, path)
        if rest[0] == "paths-info":
            asked = [value for name, value in urllib.parse.parse_qsl(self.body.decode()) if name == "paths"]
            found = [path for path in asked if os.path.exists(os.path.join(root, path))]
            return self.reply([self.entry(revision, root, path) for path in found])
        raise Refused(404, "", "Not Found")

    def entry(self, revision, root, path):
        file = os.path.join(root, path)
        if os.path.isdir(file):
            return {"type": "directory", "oid": hashlib.sha1(path.encode()).hexdigest(), "size": 0, "path": path}
        git, sha256, size = hashes(file)
        if revision is None:
            return {"type": "file", "path": path, "size": size, "xetHash": sha256}
        if size <= MOST_IN_GIT:
            return {"type": "file", "oid": git, "size": size, "path": path}
        pointer = hashlib.sha1(sha256.encode()).hexdigest()
        lfs = {"oid": sha256, "size": size, "pointerSize": 134}
        return {"type": "file", "oid": pointer, "size": size, "path": path, "lfs": lfs}

    def tree(self, revision, root, path):
        is_recursive = self.query.get("recursive", "").lower() == "true"
        if revision is None:
            names = names_of_bucket(root, path, is_recursive)
        else:
            names = self.names_of_directory(revision, root, path, is_recursive)
        after = self.query.get("cursor", "")
        names = [name for name in sorted(names) if name > after]
        limit = min(int(self.query.get("limit", PAGE)), PAGE)
        headers = {}
        if len(names) > limit:
            query = urllib.parse.urlencode(self.query | {"cursor": names[limit - 1]})
            headers["Link"] = f'<http://127.0.0.1:{self.given.port}{self.url.path}?{query}>; rel="next"'
        self.reply([self.entry(revision, root, name) for name in names[:limit]], **headers)

    def names_of_directory(self, revision, root, path, is_recursive):
        directory = self.file(root, path)
        if not os.path.isdir(directory):
            raise Refused(404, "EntryNotFound", f"{path} does not exist on {revision}")
        names = []
        for folder, folders, files in os.walk(directory):
            below = os.path.relpath(folder, root)
            names += [os.path.normpath(os.path.join(below, name)) for name in folders + files]
            if not is_recursive:
                break
        return names

    def reply(self, value, **headers):
        self.answer(200, json.dumps(value).encode(), "application/json; charset=utf-8", **headers)


def names_of_bucket(root, prefix, is_recursive):
    """A bucket has keys that begin with a text, so a sibling may be among them, and none is no error."""
    names = []
    for folder, folders, files in os.walk(root):
        below = os.path.relpath(folder, root)
        names += [os.path.normpath(os.path.join(below, name)) for name in folders + files]
    depth = len(prefix.rstrip("/").split("/")) if prefix else 0
    names = [name for name in names if name.startswith(prefix) and name != prefix]
    return [name for name in names if is_recursive or name.count("/") <= depth]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("port", type=int)
    parser.add_argument("dir")
    parser.add_argument("log")
    parser.add_argument("--token")
    parser.add_argument("--revision", action="append", default=[])
    parser.add_argument("--fault")
    given = Server.given = parser.parse_args()
    given.revisions = {"main": given.dir} | dict(revision.split("=", 1) for revision in given.revision)
    network = ThreadingHTTPServer(("127.0.0.1", given.port + 1), Network)
    threading.Thread(target=network.serve_forever, daemon=True).start()
    ThreadingHTTPServer(("127.0.0.1", given.port), Hub).serve_forever()


if __name__ == "__main__":
    main()
