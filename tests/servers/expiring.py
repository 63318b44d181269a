#!/usr/bin/env python3
"""Files for those who have a token that has not expired.

    expiring.py PORT DIR LOG SECONDS [--silent]

The port after PORT sends a new token, with `Authorization` for the files and, without --silent, the time when it
expires. LOG gets a line for each request: `token`, or the status and the path of a file.
"""
import json
import sys
import threading
import time
from datetime import datetime, timedelta, timezone
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer

PORT, DIRECTORY, LOG, SECONDS = int(sys.argv[1]), sys.argv[2], sys.argv[3], float(sys.argv[4])
IS_SILENT = "--silent" in sys.argv
ends = {}


def log(line):
    with open(LOG, "a") as file:
        file.write(line + "\n")


class Tokens(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        log("token")
        token = f"token-{len(ends)}"
        ends[token] = time.monotonic() + SECONDS
        document = {"headers": {"Authorization": f"Bearer {token}"}}
        if not IS_SILENT:
            document["expires"] = (datetime.now(timezone.utc) + timedelta(seconds=SECONDS)).isoformat()
        body = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Files(SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def log_request(self, code="-", size="-"):
        log(f"{int(code)} {self.path}")

    def send_head(self):
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if ends.get(token, 0) < time.monotonic():
            self.send_response(401)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return None
        return super().send_head()


for port, handler in ((PORT + 1, Tokens), (PORT, partial(Files, directory=DIRECTORY))):
    server = ThreadingHTTPServer(("127.0.0.1", port), handler)
    threading.Thread(target=server.serve_forever).start()
