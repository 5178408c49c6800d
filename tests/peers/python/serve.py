"""Serves the `application` of a WSGI module at an address, as OpenStack's services come without a server of their own.

usage: serve.py MODULE ADDRESS PORT
"""

import importlib
import socketserver
import sys
from wsgiref import simple_server


class Server(socketserver.ThreadingMixIn, simple_server.WSGIServer):
    """Glance asks Keystone who a client is while it answers it: one thread for each request."""

    daemon_threads = True


_, module, address, port = sys.argv
# Keystone reads it too.
del sys.argv[1:]
application = importlib.import_module(module).application
simple_server.make_server(address, int(port), application, Server).serve_forever()
