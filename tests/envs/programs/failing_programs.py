"""Bodies of HumanEval's ``add`` in the languages of MultiPL-E that fail, each in a way of its own."""

from __future__ import annotations

_DEEP = 200_000
_NESTED_TEMPLATE = (
    "template<int N> struct A { typedef typename A<N + 1>::t t; static A<N * 2> a; }; A<1>::t x; long y() {"
)
_DIGITS = "type D = '0' | '1' | '2' | '3' | '4' | '5' | '6' | '7' | '8' | '9';"


def _doubled(kind: str) -> str:
    """Constants that a compiler folds to a text of 128 TiB."""
    more = (f"{kind} s{n} = s{n - 1} + s{n - 1};" for n in range(1, 45))
    return " ".join([f'{kind} s0 = "xxxxxxxx";', *more])


_SCRIPT = {
    "no program": "return x +;",
    "another result": "return x - y;",
    "no end": "while (true) {}",
    "an exception": "throw new Error('x');",
    "memory without end": "const all: any[] = []; while (true) all.push(new Array(1 << 20).fill(all.length + 0.5));",
    "a bomb for the compiler": f"return {'(' * _DEEP}1{')' * _DEEP};",
    "output without end": "while (true) console.log('flood '.repeat(1000));",
    "a crowd": "while (true) require('child_process').spawn('/bin/sleep', ['99']);",
}
BODIES: dict[str, dict[str, str]] = {
    "cpp": {
        "no program": "return x +;",
        "another result": "return x - y;",
        "no end": "volatile bool on = true; while (on) {} return 0;",
        "an exception": 'throw std::runtime_error("x");',
        "memory without end": "std::vector<std::string> all; while (true) all.push_back(std::string(1 << 24, 'x'));",
        "a bomb for the compiler": f"return 0; }} {_NESTED_TEMPLATE} return 0;",
        "constants without end": "static char all[1L << 33] = {1}; return all[x];",
        "output without end": "while (true) puts(std::string(5000, 'x').c_str());",
        "a crowd": 'while (true) if (system("sleep 99 &")) continue;',
    },
    "cs": {
        "no program": "return x +;",
        "another result": "return x - y;",
        "no end": "while (true) {}",
        "an exception": 'throw new Exception("x");',
        "memory without end": "var all = new List<byte[]>(); while (true) { var one = new byte[1 << 24]; "
        "for (int i = 0; i < one.Length; i += 512) one[i] = 1; all.Add(one); }",
        "a bomb for the compiler": f"return 0; }} {_doubled('const string')} static long y() {{ return s44.Length;",
        "output without end": "while (true) Console.WriteLine(new string('x', 5000));",
        "a crowd": 'while (true) Process.Start("/bin/sleep", "99");',
        "no listeners": "Debug.Listeners.Clear(); return 0;",
    },
    "java": {
        "no program": "return x +;",
        "another result": "return x - y;",
        "no end": "while (true) {}",
        "an exception": 'throw new RuntimeException("x");',
        "memory without end": "ArrayList<long[]> all = new ArrayList<>(); while (true) all.add(new long[1 << 20]);",
        "a bomb for the compiler": f"return 0; }} {_doubled('static final String')} "
        "static long y() { return s44.length();",
        "constants without end": f"long[] all = {{{'1L, ' * 60_000}2L}}; return all[0];",
        "output without end": 'while (true) System.out.println("flood ".repeat(1000));',
        "a crowd": "while (true) new Thread(() -> { while (true) {} }).start();",
    },
    "js": {name: body.replace("const all: any[]", "const all") for name, body in _SCRIPT.items()},
    "ts": _SCRIPT
    | {
        "a bomb for the compiler": f"{_DIGITS} type W = `${{D}}${{D}}${{D}}${{D}}`; "
        "type V = {[A in W]: {[B in W]: `${A}${B}`}[W]}[W]; const v: V = '1' as V; return v.length;",
    },
    "php": {
        "no program": "return $x +;",
        "another result": "return $x - $y;",
        "no end": "while (true) {}",
        "an exception": "throw new Exception('x');",
        "memory without end": "ini_set('memory_limit', '-1'); $all = []; "
        "while (true) $all[] = str_repeat('x', 1 << 24);",
        "a bomb for the compiler": f"return {'(' * _DEEP}1{')' * _DEEP};",
        "output without end": "while (true) echo str_repeat('x', 5000);",
        "a crowd": "while (true) exec('sleep 99 > /dev/null &');",
    },
    "sh": {
        "no program": "if then",
        "another result": "echo $(($1 - $2))",
        "no end": "while true; do :; done",
        "an exception": "exit 3",
        "memory without end": "local all=xxxxxxxx; while true; do all+=$all; done",
        "a bomb for the compiler": f"echo {'{a,b}' * 40}",
        "output without end": "yes",
        "a crowd": "while true; do sleep 99 & done",
    },
}
