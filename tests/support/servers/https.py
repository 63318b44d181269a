"""Serves a directory over HTTPS: `https.py ROOT PORT=CERTIFICATE...`; the key has the end `.key` instead of `.pem`.

Paths below `/down/` redirect to http at the same host.
"""

import functools
import http.server
import ssl
import sys
import threading


class Handler(http.server.SimpleHTTPRequestHandler):
    def send_head(self):
        if not self.path.startswith("/down/"):
            return super().send_head()
        self.send_response(302)
        self.send_header("Location", "http://localhost" + self.path[len("/down") :])
        self.send_header("Content-Length", "0")
        self.end_headers()
        return None


def serve(root, port, certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.removesuffix(".pem") + ".key")
    handler = functools.partial(Handler, directory=root)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", int(port)), handler)
    # Each connection does its handshake in its own thread.
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, daemon=True).start()


for argument in sys.argv[2:]:
    serve(sys.argv[1], *argument.split("=", 1))
threading.Event().wait()
