#!/usr/bin/env python3
"""The REST interface of HDFS over a directory: a name node, and a data node that sends the files.

    webhdfs.py PORT DIR LOG [--user NAME] [--token TOKEN] [--old]

Hadoop itself is a Java program of 700 MB; this one responds with its statuses, exceptions and JSON, for the
operations that read: GETFILESTATUS, LISTSTATUS, LISTSTATUS_BATCH (pages of 7 names) and OPEN. The data node is at
PORT + 1, and closes each connection. With --user or --token, all other users are refused. With --old, there is no
LISTSTATUS_BATCH, as before Hadoop 2.8. LOG gets a line for each request: node, operation, path, status, bytes.
"""
import argparse
import json
import os
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PREFIX = "/webhdfs/v1"
PAGE = 7


class Refused(Exception):
    """A RemoteException, as Hadoop sends it."""

    def __init__(self, status, name, message):
        self.status, self.name, self.message = status, name, message


class Node(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Head and body are sent together.
    wbufsize = -1
    given = None
    is_data_node = False

    def log_message(self, *_):
        pass

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        self.query = {name.lower(): value for name, value in urllib.parse.parse_qsl(url.query)}
        self.operation = self.query.get("op", "").upper()
        self.name = ""
        path = urllib.parse.unquote(url.path)
        if not path.startswith(PREFIX):
            return self.answer(404, b"<html>not here</html>", "text/html")
        self.name = path[len(PREFIX):].strip("/")
        try:
            self.operate()
        except Refused as refused:
            error = {"exception": refused.name, "javaClassName": "java.io." + refused.name, "message": refused.message}
            self.reply({"RemoteException": error}, refused.status)

    def operate(self):
        given = self.given
        if given.user and self.query.get("user.name") != given.user:
            raise Refused(403, "AccessControlException", f"Permission denied: user={self.query.get('user.name')}")
        if given.token and self.query.get("delegation") != given.token:
            raise Refused(403, "InvalidToken", "token can't be found in cache")
        file = os.path.join(given.dir, self.name)
        if ".." in self.name.split("/") or not os.path.exists(file):
            raise Refused(404, "FileNotFoundException", f"File does not exist: /{self.name}")
        operations = {"GETFILESTATUS": self.status, "LISTSTATUS": self.list, "OPEN": self.open}
        if not given.old:
            operations["LISTSTATUS_BATCH"] = self.list_batch
        if self.operation not in operations:
            raise Refused(400, "IllegalArgumentException", f'Invalid value for webhdfs parameter "op": No enum constant {self.operation}')
        operations[self.operation](file)

    @staticmethod
    def status_of(file, name):
        stat = os.stat(file)
        is_directory = os.path.isdir(file)
        return {
            "accessTime": 0, "blockSize": 0 if is_directory else 134217728, "fileId": stat.st_ino, "group": "supergroup",
            "length": 0 if is_directory else stat.st_size, "modificationTime": int(stat.st_mtime * 1000), "owner": "hdfs",
            "pathSuffix": name, "permission": "755" if is_directory else "644",
            "type": "DIRECTORY" if is_directory else "FILE",
        }

    def status(self, file):
        self.reply({"FileStatus": self.status_of(file, "")})

    def statuses(self, file, names):
        return {"FileStatuses": {"FileStatus": [self.status_of(os.path.join(file, name), name) for name in names]}}

    @staticmethod
    def names(file):
        return sorted(os.listdir(file), key=os.fsencode)

    def list(self, file):
        self.reply(self.statuses(file, self.names(file)))

    def list_batch(self, file):
        after = os.fsencode(self.query.get("startafter", ""))
        names = [name for name in self.names(file) if os.fsencode(name) > after]
        rest = max(0, len(names) - PAGE)
        listing = {"partialListing": self.statuses(file, names[:PAGE]), "remainingEntries": rest}
        self.reply({"DirectoryListing": listing})

    def open(self, file):
        if os.path.isdir(file):
            raise Refused(404, "FileNotFoundException", f"Path is not a file: /{self.name}")
        if not self.is_data_node:
            host = f"http://127.0.0.1:{self.given.port + 1}{self.path}"
            return self.answer(307, b"", "application/octet-stream", Location=host)
        size = os.path.getsize(file)
        offset = int(self.query.get("offset", 0))
        if offset > size:
            raise Refused(403, "IOException", f"Offset={offset} out of the range [0, {size})")
        with open(file, "rb") as opened:
            opened.seek(offset)
            body = opened.read(int(self.query.get("length", size)))
        self.close_connection = True
        self.answer(200, body, "application/octet-stream", Connection="close")

    def reply(self, value, status=200):
        self.answer(status, json.dumps(value).encode(), "application/json")

    def answer(self, status, body, kind, **headers):
        node = "data" if self.is_data_node else "name"
        with open(self.given.log, "a") as log:
            log.write(f"{node} {self.operation or '-'} /{self.name} {status} {len(body)}\n")
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


class DataNode(Node):
    is_data_node = True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("port", type=int)
    parser.add_argument("dir")
    parser.add_argument("log")
    parser.add_argument("--user")
    parser.add_argument("--token")
    parser.add_argument("--old", action="store_true")
    Node.given = parser.parse_args()
    data = ThreadingHTTPServer(("127.0.0.1", Node.given.port + 1), DataNode)
    threading.Thread(target=data.serve_forever, daemon=True).start()
    ThreadingHTTPServer(("127.0.0.1", Node.given.port), Node).serve_forever()


if __name__ == "__main__":
    main()
