#!/usr/bin/env python3
"""The part of MongoDB that its drivers need to write and to read one collection, with documents in memory.

usage: mongodb.py PORT LOG [--refuse] [--break]

LOG gets a line for each command. --refuse: commands are unauthorized. --break: the connection ends in the
second batch of a cursor. The messages are those of the MongoDB wire protocol, OP_MSG, and OP_QUERY for the
first one; `bson` is of pymongo.
"""

import asyncio
import itertools
import struct
import sys
from datetime import datetime

import bson

OP_REPLY, OP_QUERY, OP_MSG = 1, 2004, 2013
CHECKSUM, MORE_TO_COME = 1, 2
# Documents of the first batch of a cursor whose command does not give their number.
FIRST_BATCH = 101
BATCH_BYTES = 8 << 20
# Commands before a user is known.
FREE = ("hello", "ismaster", "ping", "buildinfo", "endsessions")


class Broken(Exception):
    """The connection ends."""


def matches(document, query):
    for name, wanted in query.items():
        found = document.get(name)
        if isinstance(wanted, dict) and "$in" in wanted:
            if found not in wanted["$in"]:
                return False
        elif isinstance(wanted, dict) and any(key.startswith("$") for key in wanted):
            raise ValueError(f"unknown condition {wanted}")
        elif found != wanted:
            return False
    return True


def kind(value):
    return {bytes: "binData", str: "string", type(None): "missing"}.get(type(value), "other")


def evaluate(document, expression):
    """An expression of a projection."""
    if isinstance(expression, str) and expression.startswith("$"):
        return document.get(expression[1:])
    if not isinstance(expression, dict):
        return expression
    ((operator, argument),) = expression.items()
    if operator == "$cond":
        condition, then, otherwise = argument
        return evaluate(document, then if evaluate(document, condition) else otherwise)
    if operator == "$eq":
        one, other = (evaluate(document, part) for part in argument)
        return one == other
    value = evaluate(document, argument)
    if operator == "$type":
        return kind(value)
    if operator == "$binarySize" and isinstance(value, (bytes, str)):
        return len(value)
    raise ValueError(f"{operator} of {kind(value)}")


def projected(document, projection):
    found = {"_id": document["_id"]}
    for name, wanted in projection.items():
        if wanted == 1:
            if name in document:
                found[name] = document[name]
        else:
            found[name] = evaluate(document, wanted)
    return found


def aggregated(documents, pipeline):
    for stage in pipeline:
        ((operator, argument),) = stage.items()
        if operator == "$match":
            documents = [document for document in documents if matches(document, argument)]
        elif operator == "$project":
            documents = [projected(document, argument) for document in documents]
        elif operator == "$group":
            documents = [{"_id": 1, "n": len(documents)}] if documents else []
        else:
            raise ValueError(f"unknown stage {operator}")
    return documents


class Server:
    def __init__(self, log, options):
        self.collections = {}
        self.cursors = {}
        self.numbers = itertools.count(1)
        self.log, self.options = log, options

    def documents(self, command, name):
        return self.collections.setdefault((command["$db"], command[name]), [])

    def batch(self, namespace, documents, most, field):
        """Up to `most` documents, and a cursor for the rest."""
        some, size = [], 0
        while documents and len(some) < most and size < BATCH_BYTES:
            size += len(bson.encode(documents[0]))
            some.append(documents.pop(0))
        number = 0
        if documents:
            number = next(self.numbers)
            self.cursors[number] = (namespace, documents)
        return {"cursor": {field: some, "id": bson.Int64(number), "ns": namespace}, "ok": 1.0}

    def first(self, command, name, documents, most):
        namespace = f"{command['$db']}.{command[name]}"
        return self.batch(namespace, list(documents), most or FIRST_BATCH, "firstBatch")

    def hello(self, _):
        return {
            "helloOk": True,
            "ismaster": True,
            "isWritablePrimary": True,
            "maxBsonObjectSize": 16 << 20,
            "maxMessageSizeBytes": 48_000_000,
            "maxWriteBatchSize": 100_000,
            "localTime": datetime.now(),
            "logicalSessionTimeoutMinutes": 30,
            "minWireVersion": 0,
            "maxWireVersion": 21,
            "readOnly": False,
            "ok": 1.0,
        }

    ismaster = hello

    def ping(self, _):
        return {"ok": 1.0}

    endsessions = killcursors = ping

    def buildinfo(self, _):
        return {"version": "7.0.0", "versionArray": [7, 0, 0, 0], "ok": 1.0}

    def find(self, command):
        query = command.get("filter", {})
        documents = [one for one in self.documents(command, "find") if matches(one, query)]
        if command.get("limit"):
            documents = documents[: abs(command["limit"])]
        return self.first(command, "find", documents, command.get("batchSize"))

    def aggregate(self, command):
        documents = aggregated(self.documents(command, "aggregate"), command["pipeline"])
        return self.first(command, "aggregate", documents, command["cursor"].get("batchSize"))

    def getmore(self, command):
        if "--break" in self.options:
            raise Broken
        namespace, documents = self.cursors.pop(command["getMore"])
        return self.batch(namespace, documents, command.get("batchSize", sys.maxsize), "nextBatch")

    def insert(self, command):
        documents = self.documents(command, "insert")
        for document in command["documents"]:
            documents.append({"_id": document.pop("_id", bson.ObjectId()), **document})
        return {"n": len(command["documents"]), "ok": 1.0}

    def update(self, command):
        documents, inserted = self.documents(command, "update"), []
        for number, update in enumerate(command["updates"]):
            place = next((n for n, one in enumerate(documents) if matches(one, update["q"])), None)
            if place is not None:
                documents[place] = {"_id": documents[place]["_id"], **update["u"]}
            elif update.get("upsert"):
                documents.append({"_id": bson.ObjectId(), **update["u"]})
                inserted.append({"index": number, "_id": documents[-1]["_id"]})
        count = len(command["updates"])
        upserted = {"upserted": inserted} if inserted else {}
        return {"n": count, "nModified": count - len(inserted), **upserted, "ok": 1.0}

    def delete(self, command):
        documents = self.documents(command, "delete")
        before = len(documents)
        for query in command["deletes"]:
            documents[:] = [one for one in documents if not matches(one, query["q"])]
        return {"n": before - len(documents), "ok": 1.0}

    def reply(self, command):
        name = next(iter(command))
        handler = getattr(self, name.lower(), None)
        if name.lower() not in FREE:
            print(name, file=self.log, flush=True)
        if "--refuse" in self.options and name.lower() not in FREE:
            return {"ok": 0.0, "code": 13, "codeName": "Unauthorized", "errmsg": "not authorized"}
        if handler is None:
            return {"ok": 0.0, "code": 59, "codeName": "CommandNotFound", "errmsg": f"no {name}"}
        try:
            return handler(command)
        except (KeyError, ValueError) as error:
            return {"ok": 0.0, "code": 2, "codeName": "BadValue", "errmsg": str(error)}


def command_of(body):
    """The command of an OP_MSG, with its sequences of documents, and its flags."""
    (flags,) = struct.unpack_from("<I", body)
    end = len(body) - (4 if flags & CHECKSUM else 0)
    place, command, sequences = 4, {}, {}
    while place < end:
        section, place = body[place], place + 1
        (length,) = struct.unpack_from("<i", body, place)
        if section == 0:
            command = bson.decode(body[place : place + length])
        else:
            zero = body.index(b"\0", place + 4)
            name = body[place + 4 : zero].decode()
            sequences[name] = bson.decode_all(body[zero + 1 : place + length])
        place += length
    return {**command, **sequences}, flags


async def serve(server, reader, writer):
    def send(operation, request, payload):
        header = struct.pack("<iiii", 16 + len(payload), next(server.numbers), request, operation)
        writer.write(header + payload)

    try:
        while True:
            header = await reader.readexactly(16)
            length, request, _, operation = struct.unpack("<iiii", header)
            body = await reader.readexactly(length - 16)
            if operation == OP_QUERY:
                command = bson.decode(body[body.index(b"\0", 4) + 9 :])
                reply = bson.encode(server.reply(command))
                send(OP_REPLY, request, struct.pack("<iqii", 8, 0, 0, 1) + reply)
            elif operation == OP_MSG:
                command, flags = command_of(body)
                reply = bson.encode(server.reply(command))
                if not flags & MORE_TO_COME:
                    send(OP_MSG, request, struct.pack("<IB", 0, 0) + reply)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError, Broken):
        pass
    finally:
        writer.close()


async def main(port, log, *options):
    with open(log, "w") as log:
        server = Server(log, options)
        listener = await asyncio.start_server(lambda *streams: serve(server, *streams), "127.0.0.1", port)
        async with listener:
            await listener.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
