"""Clients and an upstream in one thread: a round sends one request on each connection, then waits for all answers.

What the gateway finds ready at each wake-up is then the same in every run, as far as a network allows, and so is what
it does: the counts of two runs can be compared.
"""

import re
import selectors
import socket

# Nobody waits this long for an answer, not even of a program under callgrind on a busy machine.
PATIENCE_S = 60

LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


class Stuck(Exception):
    """The gateway did not answer, or closed a connection."""


class Message:
    """What has arrived of one message. Its length is told by Content-Length, or it has no body."""

    def __init__(self):
        self.bytes = bytearray()

    def add(self, data):
        """Takes what has arrived; returns the whole message once it is there."""
        self.bytes += data
        head = self.bytes.find(b"\r\n\r\n")
        if head < 0:
            return None
        length = LENGTH.search(self.bytes, 0, head + 2)
        whole = head + 4 + (int(length[1]) if length else 0)
        if len(self.bytes) < whole:
            return None
        message, self.bytes = bytes(self.bytes[:whole]), self.bytes[whole:]
        return message


class LockStep:
    """An upstream on a free port of its own, and clients of whatever `connect` is told."""

    def __init__(self, answer):
        self.answer = answer
        self.selector = selectors.DefaultSelector()
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.selector.register(self.listener, selectors.EVENT_READ, self._accept)
        self.upstream = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.clients = []
        self.waiting = 0
        self.statuses = {}

    def connect(self, address, count, message=Message, hello=b""):
        """Opens `count` connections to the gateway, says `hello` on each, and reads each answer as a `message`."""
        for _ in range(count):
            client = socket.create_connection(address, timeout=PATIENCE_S)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            client.sendall(hello)
            self.selector.register(client, selectors.EVENT_READ, self._reader(self._answered, message()))
            self.clients.append(client)

    def disconnect(self):
        """Closes the clients' connections."""
        for client in self.clients:
            self.selector.unregister(client)
            client.close()
        self.clients = []

    def round(self, requests):
        """Sends `requests`, one a connection, and waits for their answers."""
        self.waiting = len(requests)
        for client, request in zip(self.clients, requests, strict=True):
            client.sendall(request)
        while self.waiting:
            events = self.selector.select(PATIENCE_S)
            if not events:
                raise Stuck("no answer within %d s" % PATIENCE_S)
            for key, _ in events:
                key.data(key.fileobj)

    def _accept(self, listener):
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.selector.register(connection, selectors.EVENT_READ, self._reader(self._asked, Message()))

    def _reader(self, take, message):
        def read(connection):
            data = connection.recv(1 << 18)
            if not data:
                self.selector.unregister(connection)
                connection.close()
                if connection in self.clients:
                    raise Stuck("the gateway closed a connection")
                return
            whole = message.add(data)
            if whole:
                take(connection, whole)

        return read

    def _asked(self, connection, _request):
        connection.sendall(self.answer)

    def _answered(self, _client, answer):
        status = answer[9:12].decode()
        self.statuses[status] = self.statuses.get(status, 0) + 1
        self.waiting -= 1
