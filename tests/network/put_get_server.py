"""An HTTP store: keeps what is PUT, gives it to GET, to the user me with the password p/a@ss alone. Prints the port that it took."""

import base64
import http.server

kept = {}
LOGIN = "Basic " + base64.b64encode(b"me:p/a@ss").decode()


class Store(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status, body=b""):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def body(self):
        return self.rfile.read(int(self.headers["Content-Length"]))

    def may_ask(self):
        return self.headers["Authorization"] == LOGIN

    def do_PUT(self):
        body = self.body()
        if not self.may_ask():
            return self.answer(401)
        kept[self.path] = body
        return self.answer(201)

    def do_GET(self):
        if not self.may_ask():
            return self.answer(401)
        return self.answer(200, kept[self.path]) if self.path in kept else self.answer(404)

    def log_message(self, *arguments):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Store)
print(server.server_port, flush=True)
server.serve_forever()
