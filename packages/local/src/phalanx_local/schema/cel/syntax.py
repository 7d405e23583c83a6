"""Parser of the Common Expression Language.

Grammar: that of cel-spec, with the optional syntax of Kubernetes (``a.?b``, ``a[?k]``, ``[?x]``, ``{?k: v}``),
without message construction. Operators are parsed as calls named ``_+_``, ``!_``, ``_?_:_`` and so on.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from phalanx_local.schema.cel.errors import CompileError
from phalanx_local.schema.cel.values import UInt


@dataclass(frozen=True, slots=True)
class Literal:
    """Constant in a CEL expression."""

    position: int
    value: Any


@dataclass(frozen=True, slots=True)
class Ident:
    """Identifier in a CEL expression."""

    position: int
    name: str


@dataclass(frozen=True, slots=True)
class Select:
    """Field selection ``operand.field``, or ``operand.?field``."""

    position: int
    operand: Node
    field: str
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Index:
    """Index expression ``operand[key]``, or ``operand[?key]``."""

    position: int
    operand: Node
    key: Node
    optional: bool = False


@dataclass(frozen=True, slots=True)
class CallExpr:
    """Function call ``name(args)``, or member call ``target.name(args)``."""

    position: int
    name: str
    args: tuple[Node, ...]
    target: Node | None = None


@dataclass(frozen=True, slots=True)
class ListOf:
    """List literal ``[a, ?b]``, as (optional, item) pairs."""

    position: int
    items: tuple[tuple[bool, Node], ...]


@dataclass(frozen=True, slots=True)
class MapOf:
    """Map literal ``{k: v, ?k: v}``, as (optional, key, value) triples."""

    position: int
    entries: tuple[tuple[bool, Node, Node], ...]


Node = Literal | Ident | Select | Index | CallExpr | ListOf | MapOf

RESERVED: Final = frozenset(
    (
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    )
)
_TOKEN: Final = re.compile(
    r"""(?P<space>(?:\s+|//[^\n]*)+)
    |(?P<string>(?:[rR]|[bB]|[rR][bB]|[bB][rR])?(?:'''(?:\\.|[^\\])*?'''|\"\"\"(?:\\.|[^\\])*?\"\"\"
        |'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"))
    |(?P<float>\d+\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\.\d+(?:[eE][+-]?\d+)?)
    |(?P<int>0[xX][0-9a-fA-F]+[uU]?|\d+[uU]?)
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<quoted>`[A-Za-z0-9_.\-/ ]+`)
    |(?P<mark>&&|\|\||==|!=|<=|>=|[-+*/%<>!?:.,()\[\]{}])""",
    re.VERBOSE | re.DOTALL,
)
#: Raw strings end at the first quote: a backslash in them is literal.
_RAW: Final = re.compile(
    r"""(?:[rR]|[rR][bB]|[bB][rR])(?:'''.*?'''|\"\"\".*?\"\"\"|'[^'\n]*'|"[^"\n]*")""", re.DOTALL
)
_ESCAPE: Final = re.compile(
    r"""\\(?:(?P<plain>[abfnrtv\\?"'`])|[xX](?P<hex>[0-9a-fA-F]{2})|u(?P<short>[0-9a-fA-F]{4})"""
    r"""|U(?P<long>[0-9a-fA-F]{8})|(?P<octal>[0-3][0-7]{2})|(?P<bad>.?))""",
    re.DOTALL,
)
_PLAIN: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}

_KEYWORDS: Final = frozenset(("true", "false", "null", "in"))
_RELATIONS: Final = frozenset(("<", "<=", ">", ">=", "==", "!=", "in"))
#: Maximum nesting of expressions: enough for any rule, and well within the interpreter's stack.
_DEPTH: Final = 60


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    position: int


def parse(source: str) -> Node:
    """Parse a CEL expression to its syntax tree; raise CompileError if the text is invalid."""
    return _Parser(source).whole()


def _tokens(source: str) -> list[_Token]:
    tokens: list[_Token] = []
    position = 0
    while position < len(source):
        match = _RAW.match(source, position)
        kind = "string"
        if match is None:
            match = _TOKEN.match(source, position)
            if match is None:
                raise CompileError(f"Syntax error: token recognition error at: '{source[position]}'", position)
            kind = match.lastgroup or ""
        if kind != "space":
            tokens.append(_Token(kind, match.group(), position))
        position = match.end()
    tokens.append(_Token("end", "<EOF>", len(source)))
    return tokens


class _Parser:
    def __init__(self, source: str) -> None:
        self.tokens = _tokens(source)
        self.at = 0
        self.depth = 0

    def whole(self) -> Node:
        node = self.expression()
        if self.tokens[self.at].kind != "end":
            self._unexpected("<EOF>")
        return node

    def _unexpected(self, wanted: str = "") -> None:
        token = self.tokens[self.at]
        hint = f" expecting {wanted}" if wanted else ""
        raise CompileError(f"Syntax error: mismatched input '{token.text}'{hint}", token.position)

    def _peek(self, *marks: str) -> bool:
        token = self.tokens[self.at]
        return token.text in marks and token.kind in ("mark", "name")

    def _expect(self, mark: str) -> _Token:
        token = self.tokens[self.at]
        if not self._peek(mark):
            self._unexpected(f"'{mark}'")
        self.at += 1
        return token

    def _accept(self, *marks: str) -> _Token | None:
        if self._peek(*marks):
            self.at += 1
            return self.tokens[self.at - 1]
        return None

    def expression(self) -> Node:
        self.depth += 1
        if self.depth > _DEPTH:
            raise CompileError("expression recursion limit exceeded", self.tokens[self.at].position)
        condition = self._either()
        mark = self._accept("?")
        if mark is not None:
            chosen = self._either()
            self._expect(":")
            condition = CallExpr(mark.position, "_?_:_", (condition, chosen, self.expression()))
        self.depth -= 1
        return condition

    def _either(self) -> Node:
        terms, marks = [self._both()], []
        while (mark := self._accept("||")) is not None:
            marks.append(mark.position)
            terms.append(self._both())
        return _balanced("_||_", terms, marks)

    def _both(self) -> Node:
        terms, marks = [self._relation()], []
        while (mark := self._accept("&&")) is not None:
            marks.append(mark.position)
            terms.append(self._relation())
        return _balanced("_&&_", terms, marks)

    def _relation(self) -> Node:
        node = self._sum()
        while self.tokens[self.at].text in _RELATIONS and self.tokens[self.at].kind != "string":
            mark = self.tokens[self.at]
            self.at += 1
            node = CallExpr(mark.position, f"_{mark.text}_" if mark.text != "in" else "@in", (node, self._sum()))
        return node

    def _sum(self) -> Node:
        node = self._product()
        while (mark := self._accept("+", "-")) is not None:
            node = CallExpr(mark.position, f"_{mark.text}_", (node, self._product()))
        return node

    def _product(self) -> Node:
        node = self._unary()
        while (mark := self._accept("*", "/", "%")) is not None:
            node = CallExpr(mark.position, f"_{mark.text}_", (node, self._unary()))
        return node

    def _unary(self) -> Node:
        mark = self._accept("!", "-")
        if mark is None:
            return self._member()
        following = self.tokens[self.at]
        if mark.text == "-" and following.kind in ("int", "float"):
            self.at += 1
            return self._postfix(_number("-" + following.text, following.kind, mark.position))
        self.depth += 1
        if self.depth > _DEPTH:
            raise CompileError("expression recursion limit exceeded", mark.position)
        node = CallExpr(mark.position, f"{mark.text}_", (self._unary(),))
        self.depth -= 1
        return node

    def _member(self) -> Node:
        return self._postfix(self._primary())

    def _postfix(self, node: Node) -> Node:
        while True:
            mark = self._accept(".", "[")
            if mark is None:
                return node
            optional = self._accept("?") is not None
            if mark.text == "[":
                key = self.expression()
                self._expect("]")
                node = Index(mark.position, node, key, optional)
                continue
            token = self.tokens[self.at]
            if token.kind not in ("name", "quoted") or token.text in _KEYWORDS:
                self._unexpected("IDENTIFIER")
            self.at += 1
            if token.kind == "name" and not optional and self._peek("("):
                opening = self._expect("(")
                node = CallExpr(opening.position, token.text, self._arguments(), node)
            else:
                node = Select(mark.position, node, token.text.strip("`"), optional)

    def _arguments(self) -> tuple[Node, ...]:
        args: list[Node] = []
        while not self._peek(")"):
            args.append(self.expression())
            if self._accept(",") is None:
                break
        self._expect(")")
        return tuple(args)

    def _primary(self) -> Node:
        token = self.tokens[self.at]
        if token.kind in ("int", "float"):
            self.at += 1
            return _number(token.text, token.kind, token.position)
        if token.kind == "string":
            self.at += 1
            return Literal(token.position, _text(token))
        if self._accept("("):
            node = self.expression()
            self._expect(")")
            return node
        if self._accept("["):
            return self._list(token)
        if self._accept("{"):
            return self._map(token)
        self._accept(".")
        return self._name()

    def _name(self) -> Node:
        token = self.tokens[self.at]
        if token.kind != "name" or token.text == "in":
            self._unexpected()
        self.at += 1
        if token.text in ("true", "false", "null"):
            return Literal(token.position, {"true": True, "false": False, "null": None}[token.text])
        if self._peek("("):
            opening = self._expect("(")
            return CallExpr(opening.position, token.text, self._arguments())
        if token.text in RESERVED:
            raise CompileError(f"reserved identifier: {token.text}", token.position)
        return Ident(token.position, token.text)

    def _list(self, opening: _Token) -> Node:
        items: list[tuple[bool, Node]] = []
        while not self._peek("]"):
            optional = self._accept("?") is not None
            items.append((optional, self.expression()))
            if self._accept(",") is None:
                break
        self._expect("]")
        return ListOf(opening.position, tuple(items))

    def _map(self, opening: _Token) -> Node:
        entries: list[tuple[bool, Node, Node]] = []
        while not self._peek("}"):
            optional = self._accept("?") is not None
            key = self.expression()
            self._expect(":")
            entries.append((optional, key, self.expression()))
            if self._accept(",") is None:
                break
        self._expect("}")
        return MapOf(opening.position, tuple(entries))


def _balanced(name: str, terms: list[Node], marks: list[int]) -> Node:
    """Return a chain of ``&&`` or ``||`` operands as a balanced tree; the grouping does not change the result."""
    if len(terms) == 1:
        return terms[0]
    middle = len(terms) // 2
    left = _balanced(name, terms[:middle], marks[: middle - 1])
    return CallExpr(marks[middle - 1], name, (left, _balanced(name, terms[middle:], marks[middle:])))


def _number(text: str, kind: str, position: int) -> Literal:
    if kind == "float":
        return Literal(position, float(text))
    unsigned = text[-1] in "uU"
    value = int(text.rstrip("uU"), 0 if "x" in text.lower() else 10)
    if unsigned:
        if not 0 <= value < 2**64:
            raise CompileError("invalid uint literal", position)
        return Literal(position, UInt(value))
    if not -(2**63) <= value < 2**63:
        raise CompileError("invalid int literal", position)
    return Literal(position, value)


def _text(token: _Token) -> str | bytes:
    quote = min(index for index in map(token.text.find, "'\"") if index >= 0)
    prefix, body = token.text[:quote].lower(), token.text[quote:]
    size = 3 if body[:3] in ("'''", '"""') and len(body) >= 6 else 1
    body = body[size:-size]
    is_bytes = "b" in prefix
    if "r" not in prefix:

        def unescape(match: re.Match[str]) -> str:
            if match["plain"]:
                return _PLAIN.get(match["plain"], match["plain"])
            if match["octal"]:
                return chr(int(match["octal"], 8))
            digits = match["hex"] or match["short"] or match["long"]
            if digits and int(digits, 16) <= 0x10FFFF and not (is_bytes and not match["hex"]):
                return chr(int(digits, 16))
            raise CompileError("invalid escape sequence in string literal", token.position)

        if is_bytes:
            # Numeric escapes are bytes, all other text is UTF-8.
            parts: list[bytes] = []
            last = 0
            for match in _ESCAPE.finditer(body):
                parts.append(body[last : match.start()].encode())
                char = unescape(match)
                parts.append(bytes([ord(char)]))
                last = match.end()
            return b"".join((*parts, body[last:].encode()))
        body = _ESCAPE.sub(unescape, body)
    return body.encode() if is_bytes else body
