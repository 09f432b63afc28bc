"""A model in Promela, for Spin (Holzmann, "The Spin Model Checker", 2004).

One process goes round a loop whose options are the events, each in one indivisible step (``d_step``), so that between
two of them there is exactly one state and Spin's *states, stored* is the number of unique states. Components are global
variables; what events do is looked up in C arrays (chapter 17, embedded code) by binary search, because an option for
each row would take the compiler longer than the search. An embedded assertion in front of each step says that its
combination is in the tables and violates nothing.
"""

from collections.abc import Iterable, Iterator, Sequence

from checker.oracle.tables import EventTable, Tables, plain
from checker.table import Numbers

HEAD = """/*
 * {key}, written for Spin. {states:,} states, as our own search has them{some}.
 *
 *   spin -a {name}.pml
 *   cc -O1 -w -DSAFETY -DNOREDUCE -DMEMLIM=4096 -DORACLE_JUDGE=0 -o pan pan.c && ./pan -m1000000 -E -n
 *
 * "states, stored" has to be {states}, and "errors" 0. With -DORACLE_JUDGE=1 properties are judged, and with ./pan -c0
 * all violations are looked for: "errors" then has to be {errors}. (A run ends where something is violated, so that
 * then fewer states may be stored.)
 */
"""
LOOKUP = """static int oracle_find(const unsigned long long *keys, int count, unsigned long long key)
{
    int low = 0, high = count - 1;
    while (low <= high) {
        int middle = (low + high) / 2;
        if (keys[middle] == key) return middle;
        if (keys[middle] < key) low = middle + 1; else high = middle - 1;
    }
    return -1;
}
"""


def promela(tables: Tables, name: str) -> dict[str, str]:
    """The model and the arrays that it includes, by file name. Raises OverflowError when what an event reads does not
    fit in 64 bits."""
    return {
        f"{name}.pml": "\n".join(_model(tables, name)) + "\n",
        f"{name}.h": "\n".join(_arrays(tables)) + "\n",
    }


def _model(tables: Tables, name: str) -> Iterator[str]:
    yield HEAD.format(
        key=tables.model.key,
        name=name,
        states=tables.states,
        some="" if tables.complete else ", which were cut off: the numbers will differ",
        errors="more than 0" if tables.violated else "0",
    )
    for place, part in enumerate(tables.model.components):
        kind = _type(tables.sizes[place])
        yield f"{kind} v{place} = {tables.initial[place]}; /* {plain(part.name)} */"
    yield f'\nc_decl {{ \\#include "{name}.h" }}\n'
    yield "c_code {"
    yield "    static int oracle_states(void) {"
    yield "        return 1"
    for number, state in enumerate(tables.properties):
        if state.bad:
            key = _index(state.places, tables.sizes)
            yield f"            && !(ORACLE_JUDGE && oracle_find(s{number}_bad, {len(state.bad)}, {key}) >= 0)"
    yield "            ;"
    yield "    }"
    yield "}"
    for number, table in enumerate(tables.events):
        yield from _functions(number, table, tables.sizes)
    yield "\nactive proctype events()\n{\n    do"
    for number, table in enumerate(tables.events):
        yield (
            f"    :: d_step {{ c_expr {{ (e{number}_may()) }} -> c_code [e{number}_right()] {{ e{number}_do(); }}; "
            f"c_code [oracle_states()] {{ ; }} }} /* {plain(table.event.name)} */"
        )
    yield "    od\n}"


def _functions(number: int, table: EventTable, sizes: Numbers) -> Iterator[str]:
    find = f"oracle_find(e{number}_keys, {len(table.rows)}, {_index(table.reads, sizes)})"
    judge = ""
    if table.bad:
        watched = f"oracle_find(e{number}_bad, {len(table.bad)}, {_index(table.watch, sizes)})"
        judge = f" && !(ORACLE_JUDGE && {watched} >= 0)"
    yield "c_code {"
    yield f"    static int e{number}_may(void) {{ int row = {find}; return row < 0 || e{number}_on[row]; }}"
    yield f"    static int e{number}_right(void) {{ return {find} >= 0{judge}; }}"
    yield f"    static void e{number}_do(void) {{"
    yield f"        int row = {find};"
    yield f"        if (row < 0 || e{number}_same[row]) return;"
    for place, component in enumerate(table.writes):
        yield f"        now.v{component} = e{number}_w{place}[row];"
    yield "    }"
    yield "}"


def _arrays(tables: Tables) -> Iterator[str]:
    yield LOOKUP
    for number, table in enumerate(tables.events):
        rows = sorted((_key(row.reads, table.reads, tables.sizes), row) for row in table.rows)
        yield f"/* {plain(table.event.name)} */"
        yield from _array(f"e{number}_keys", "unsigned long long", [key for key, _ in rows])
        yield from _array(f"e{number}_on", "unsigned char", [int(row.enabled) for _, row in rows])
        yield from _array(f"e{number}_same", "unsigned char", [int(not row.writes) for _, row in rows])
        for place in range(len(table.writes)):
            values = [row.writes[place] if row.writes else 0 for _, row in rows]
            yield from _array(f"e{number}_w{place}", "int", values)
        bad = sorted(_key(one, table.watch, tables.sizes) for one in table.bad)
        yield from _array(f"e{number}_bad", "unsigned long long", bad)
    for number, state in enumerate(tables.properties):
        yield f"/* {plain(state.prop.name)} */"
        keys = sorted(_key(one, state.places, tables.sizes) for one in state.bad)
        yield from _array(f"s{number}_bad", "unsigned long long", keys)


def _array(name: str, kind: str, values: Sequence[int]) -> Iterator[str]:
    suffix = "ULL" if kind.endswith("long long") else ""
    told = [f"{value}{suffix}" for value in values] or ["0"]  # C has no empty arrays
    yield f"static const {kind} {name}[] = {{"
    for begin in range(0, len(told), 16):
        yield f"    {', '.join(told[begin : begin + 16])},"
    yield "};"


def _key(numbers: Iterable[int], places: Iterable[int], sizes: Numbers) -> int:
    """A combination as one number, each component a digit of its own base."""
    key = 0
    for number, place in zip(numbers, places, strict=True):
        key = key * sizes[place] + number
    if key >> 64:
        raise OverflowError("what an event reads does not fit in 64 bits")
    return key


def _index(places: Iterable[int], sizes: Numbers) -> str:
    """The same in C, of the state as it is."""
    told = "0ULL"
    for place in places:
        told = f"({told} * {sizes[place]}ULL + now.v{place})"
    return told


def _type(size: int) -> str:
    return "byte" if size <= 256 else "short" if size <= 32768 else "int"
