"""Ratings of users: separators, the rows of each rank, the cache, and bad lines."""

import bz2
import gzip
import lzma
import re
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ranks import run_alone, run_ranks, same_error

import malt
from malt.data import dealing, ratings
from malt.data.ratings import load_ratings, open_ratings
from malt.data.text import rating_text, text_file

pytestmark = pytest.mark.usefixtures("user_cache")


@pytest.fixture
def write(tmp_path):
    def writing(text, name="ratings.txt"):
        path = tmp_path / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return str(path)

    return writing


def opened(path):
    return run_alone(lambda transport: open_ratings(path, transport=transport))


def triples(found):
    """(user, item, rating) as the file names them."""
    users, items = found.user_ids[found.users].tolist(), found.item_ids[found.items].tolist()
    return list(zip(users, items, found.ratings.tolist(), strict=True))


TRIPLES = [(7, 30, 4.5), (7, 2, -1.0), (12, 30, 0.25)]
FORMS = {
    "spaces": "7 30 4.5\n7 2 -1\n12 30 .25\n",
    "tabs": "7\t30\t4.5\n7\t2\t-1\n12\t30\t.25\n",
    "commas": "7,30,4.5\n7,2,-1\n12,30,.25",
    "colons": "7::30::4.5::978300760\n7::2::-1::978302109\n12::30::.25::978301968\n",
    "titles": "userId,movieId,rating,timestamp\n7,30,4.5,12\n7,2,-1,11\n12,30,.25,10\n",
    "titles between blank lines": "\n user item rating\n\n7 30 4.5\n7 2 -1\n\n12 30 .25\n\n",
    "white space of all kinds": "  7  30\t 4.5 \r\n7\t\t2 -1\r\n12 30 2.5e-1 99\r\n",
    "white space around commas": "7, 30,\t4.5 \r\n7 ,2 , -1\r\n12,30 ,2.5e-1, 99\r\n",
    "white space around colons": "7:: 30 ::4.5\r\n\r\n7 ::2::-1\r\n12::30:: 2.5e-1 ::99\r\n",
    "some with a timestamp": "7 30 4.5\n7 2 -1 5\n12 30 .25 5.0\n",
    "the rating last": "userId,movieId,timestamp,rating\n7,30,126075914,4.5\n7,2,126075915,-1\n12,30,126075916,.25\n",
    "the rating first": "rating\tuserId\tmovieId\n4.5\t7\t30\n-1\t7\t2\n.25\t12\t30\n",
    "the item first": "asin::reviewerID::overall\n30::7::4.5\n2::7::-1\n30::12::.25\n",
    "dates": "uid iid date rating\n7 30 2005-09-06 4.5\n7 2 2005-09-07 -1\n12 30 2005-09-08 .25\n",
    "other columns": ",user_id:token,title,item_id:token,rating:float\n0,7,x,30,4.5\n1,7,y,2,-1\n2,12,z,30,.25\n",
    "one unknown title": "user,anime_title,score\n7,30,4.5\n7,2,-1\n12,30,.25\n",
    "quotes": '"","user","item","rating"\n"1",7,30,4.5\n"2","7","2","-1"\n"3",12,30,.25\n',
    "a count of the ratings in a file of few": "12 30 .25\n7 2 -1\n7 30 4.5\n",
    "a byte order mark": "\ufeff7 30 4.5\n7 2 -1\n12 30 .25\n",
}


@pytest.mark.parametrize("form", FORMS)
def test_forms(write, form):
    found = opened(write(FORMS[form]))
    assert sorted(triples(found)) == sorted(TRIPLES)
    assert (found.users.dtype, found.items.dtype, found.ratings.dtype) == (np.int32, np.int32, np.float32)
    assert found.user_ids.tolist() == [7, 12] and found.item_ids.tolist() == [2, 30]
    assert not any(array.flags.writeable for array in vars(found).values())


NUMBERS = {"007": False, "0": True, "1" * 18: True, "1" * 19: False}
"""Whether a name is a number, and so not a text."""
READ = {
    "names in quotes, with commas": (
        'user,movie,rating\n"Doe, ""J""","Alien, the",4.5\nRoe,"5"" disk",1\n',
        [(b'Doe, "J"', b"Alien, the", 4.5), (b"Roe", b'5" disk', 1.0)],
    ),
    "names with commas between white space": (
        "Doe,J 5,5 4.5\nRoe,J a::b 1\n", [(b"Doe,J", b"5,5", 4.5), (b"Roe,J", b"a::b", 1.0)]
    ),
    "users anywhere in the file": ("9 1 1\n2 1 2\n9 0 3\n2 7 4\n", [(2, 1, 2), (2, 7, 4), (9, 1, 1), (9, 0, 3)]),
    "a rating of many digits before a timestamp": ("1 2 0.12345678901234567890123 978\n", [(1, 2, 0.12345679)]),
    "numbers below zero": ("-3 5 1\n2 -5 2\n", [(-3, 5, 1.0), (2, -5, 2.0)]),
    "a short timestamp between commas": ("user,item,rating,time\n1,2,4,5\n", [(1, 2, 4.0)]),
    "one behind a decimal": ("1,2,4.5,5\n", [(1, 2, 4.5)]), "one between spaces": ("1 2 4 5\n", [(1, 2, 4.0)]),
    "one of three digits": ("1,2,4,125\n", [(1, 2, 4.0)]),
    **{
        f"other separators in names, with {separator!r} and {titles[:4]}": (
            (titles + "u1{0}movie 17{0}4.5\n2{0}The 3 of us{0}1\n").format(separator),
            [(b"2", b"The 3 of us", 1.0), (b"u1", b"movie 17", 4.5)],
        )
        for separator in ("\t", ",", "::", " , ") for titles in ("", "user id{0}movie title{0}rating\n")
    },
    **{
        f"the name {name}": (
            f"{name} x 1\n5 y 2\n-3 x 3\n", sorted([(name.encode(), b"x", 1.0), (b"5", b"y", 2.0), (b"-3", b"x", 3.0)])
        )
        for name in ("ann", "Zoë", "a:b", "007", "+7", "-0", "1.5", "1" * 19)
    },
    **{
        f"the number {name}": (
            f"{name} {name} 1\n5 {name} 2\n",
            sorted((int(user), int(name), n) if is_number else (user.encode(), name.encode(), n)
                   for n, user in enumerate((name, "5"), 1)),
        )
        for name, is_number in NUMBERS.items()
    },
}  # fmt: skip


@pytest.mark.parametrize("name", READ)
def test_what_is_read(write, name):
    text, expected = READ[name]
    found = opened(write(text))
    assert triples(found) == [(user, item, np.float32(rating)) for user, item, rating in expected]
    assert not found.user_ids.dtype.hasobject


MIXED = {
    "commas among tabs": ("1\t2\t3\n" * 3, "1,2,3\n", "with tabs between"),
    "spaces among tabs": ("1\t2\t3\n" * 3, "1 2 3\n", "with tabs between"),
    "spaces among commas": ("1,2,3\n" * 3, "1 2 3\n", "with commas between"),
    "commas among spaces": ("1 2 3\n" * 3, "1, 2, 3\n", "with white space between"),
    "lone commas among spaces": ("1 2 3\n" * 3, "1 , 2 , 3\n", "with white space between"),
    "colons among spaces": ("1 2 3\n" * 3, "1 ::2 ::3\n", "with white space between"),
    "a tab at the head": ("1\t2\t3\n" * 3, "\t2\t3\t978\n", "with tabs between"),
    "titles of another kind": ("", "user,item,rating\n1 2 3\n", "with white space between"),
    "a decimal comma": ("1 2 3.5\n", "1 2 4,5\n", "rating '4,5' has a decimal comma: write a point"),
    "a decimal comma at the head": ("", "1\t2\t4,5\n", "rating '4,5' has a decimal comma: write a point"),
    "a decimal comma among commas": ("", "1,2,4,5\n1,2,3\n", "rating '4,5' seems to have a decimal comma"),
    "decimal commas alone": ("", "1,2,4,5\n3,4,3,25\n", "rating '4,5' seems to have a decimal comma"),
    "a decimal comma later on": ("1,2,3\n", "1,2,4,25\n", "where '25' is a timestamp, titles first"),
    "more words than titles": ("user,item,rating\n1,2,3\n", "1,2,4,525\n", "rating '4,525' seems to have"),
    "semicolons": ("", "1;2;4.5\n", "with white space between"),
    "fewer words than titles": ("user,item,rating,time\n1,2,3,4\n", "1,2,3\n", "3 words, and the titles are 4"),
    "another order, and a word too few": (
        "rating,user,item\n3,1,2\n",
        "3,1\n",
        "not the 3 words of its titles, with commas",
    ),
    "a quote without end": ("user,item,rating\n1,2,3\n", '1,"2,3\n', "not `user item rating`"),
    "titles that nobody knows": ("", "Benutzer,Film,Note\n1,2,3\n", "neither a rating nor titles that say which"),
    "two titles for users": (
        "",
        "user,reviewer,rating\n1,2,3\n",
        "neither .* name the columns in a first line: user, item",
    ),
    "a timestamp in the third column": ("", "1,10,1260759144,3\n", "rating '1260759144' seems to be a timestamp"),
    "a timestamp later on": ("1 10 3 9\n", "1 10 1260759144 3\n", "rating '1260759144' seems to be a timestamp"),
    "a rating in the fourth column": ("1 2 3 4\n", "1 2 3 4.5\n", "timestamp '4.5' is not an integer: in another"),
    "a comment": ("", "# user item rating\n1 2 3\n", "a comment, which is not read: leave out such lines"),
    "a comment with numbers": ("", "% 943 1682 100000\n1 2 3 4\n", "a comment, which is not read"),
    "a comment later on": ("1 2 3 4\n", "% 943 1682 100000\n", "a comment, which is not read"),
    "a Matrix Market file": (
        "",
        "%%MatrixMarket matrix coordinate real general\n3 3 2\n1 2 3\n",
        "a Matrix Market file",
    ),
}


@pytest.mark.parametrize("name", MIXED)
def test_a_line_in_another_form_is_named(write, name, monkeypatch):
    monkeypatch.setattr(text_file, "CHUNK_NBYTES", 16)  # later lines are in a chunk of their own
    before, line, reports = MIXED[name]
    path = write(before + line)
    with pytest.raises(ValueError, match=f"^{path}:{before.count(chr(10)) + 1}: .*{reports}"):
        opened(path)


DOUBTS = {
    "the rating first": ("2.5,1,10\n3.0,1,11\n4.0,2,10\n", "users are called 2.5, 3.0, 4.0, .* is the rating first"),
    "a line of sizes": ("3 12 5\n1 10 2\n1 11 3\n2 12 4\n2 10 1\n3 11 4\n", "count 3 users, 12 items and 5 ratings"),
    "a user that is missing": ("1.0,5,2\nnan,5,3\n2.0,6,1\n", "user 'nan' among numbers seems to be a missing value"),
    "an item that is missing": ("user,item,rating\n1,5,2\n1,NULL,3\n", "item 'NULL' among numbers seems to be"),
}


@pytest.mark.parametrize("name", DOUBTS)
def test_columns_that_are_in_doubt_once_all_is_read(write, name):
    text, reports = DOUBTS[name]
    path = write(text)
    error = same_error(run_ranks(lambda transport: load_ratings(path, transport=transport), "aa"))
    assert type(error) is ValueError and re.match(f"{path}: .*{reports}", str(error))


def test_titles_leave_no_doubt(write):
    for lines in ("2.5,1,10\n", "1,10,1260759144\n", "3,12,5\n1,10,2\n1,11,3\n2,12,4\n2,10,1\n3,11,4\n"):
        assert opened(write("user,item,rating\n" + lines)).ratings.size == lines.count("\n")
    assert opened(write("nan x 2\nbob y 3\n")).user_ids.tolist() == [b"bob", b"nan"]


def test_ratings_of_a_user_stay_in_the_order_of_the_file(write):
    lines = [(user, (37 * line + user) % 1000, 1.0) for line in range(300) for user in (9, 2, 5)]
    found = opened(write("".join(f"{user} {item} {rating}\n" for user, item, rating in lines)))
    assert triples(found) == sorted(lines, key=lambda line: line[0])


@pytest.mark.parametrize(("suffix", "module"), [(".gz", gzip), (".bz2", bz2), (".xz", lzma)])
def test_compressed(write, suffix, module):
    assert triples(opened(write(module.compress(FORMS["commas"].encode()), "ratings.csv" + suffix))) == TRIPLES


BAD = {
    "a word too few": ("1 2\n", "not `user item rating`"),
    "a word too many": ("1 2 3 4 5\n", "not `user item rating`"),
    "a word between commas missing": ("1,,3\n", "not `user item rating`"),
    "a word before a comma missing": (",2,3\n", "not `user item rating`"),
    "a word behind a comma missing": ("1,2,3,\n", "not `user item rating`"),
    "a rating that is no number": ("1 2 good\n", "rating 'good' is not a number"),
    "not a number": ("1 2 nan\n", "rating 'nan' is not finite"),
    "infinity": ("1 2 -inf\n", "rating '-inf' is not finite"),
    "too large for a double": ("1 2 1e999\n", "is not finite"),
    "too large for a float": ("1 2 1e39\n", "rating '1e39' is too large for float32"),
    "binary": ("1 \0 3\n", "a zero byte, so this is a binary file"),
    "a very long name": (f"{'x' * 257} 2 3\n", "is longer than 256 bytes"),
}


@pytest.mark.parametrize(("bad", "before"), [*((bad, lines) for bad in BAD for lines in (0, 1)), ("binary", 60_000)])
def test_a_bad_line_is_named(write, bad, before):
    line, what = BAD[bad]
    path = write("user item rating\n" + "\n" + "1 2 3\n" * before + line + "1 2 3\n")
    error = same_error(run_ranks(lambda transport: load_ratings(path, transport=transport), "aab"))
    assert type(error) is ValueError
    assert str(error).startswith(f"{path}:{before + 3}: ") and what in str(error)
    assert repr(line.strip()[:20]).strip("'") in str(error) or "\0" in line


def test_titles_are_the_first_line_only(write, monkeypatch):
    for text, message in (
        ("1 2 3\nuser item rating\n", ":2: rating 'rating' is not a number"),
        ("1 2 nan\n1 2 3\n", ":1: rating 'nan' is not finite"),
        ("user item rating\n1 2 3\n3 4 5\nuser item rating\n", ":4: rating 'rating' is not a number"),
    ):
        with pytest.raises(ValueError, match=message):
            opened(write(text))
        monkeypatch.setattr(text_file, "CHUNK_NBYTES", 6)


def test_no_ratings(write, tmp_path):
    for text in ("user item rating\n", "\n \n"):
        with pytest.raises(ValueError, match="there are no ratings in it"):
            opened(write(text))
    path = str(tmp_path / "none.txt")
    error = same_error(run_ranks(lambda transport: load_ratings(path, transport=transport), "ab"))
    assert type(error) is FileNotFoundError and error.filename == path
    for load in (load_ratings, open_ratings):
        error = same_error(run_ranks(lambda transport, load=load: load(None, transport=transport), "ab"))
        assert str(error) == "malt.load_ratings: path must be a string or a path, got None"


WORDS = st.sampled_from(["1", "2", "31", "007", "-4", "x", "y:z"])
SEPARATORS = st.sampled_from([" ", "\t", ",", "::", " , ", "  "])


TITLES = st.permutations([b"user", b"item", b"rating", b"time", b"other"])
RATINGS = st.sampled_from(["1", "-2.5", "3e-1", "+4.", "4,5", "nan", ""])


@settings(max_examples=60)
@given(TITLES, SEPARATORS, st.lists(st.tuples(WORDS, WORDS, RATINGS, WORDS, WORDS), min_size=1, max_size=4))
def test_both_readers_agree_on_columns_in_any_order(titles, separator, rows):
    names = (b"user", b"item", b"rating", b"time", b"other")
    lines = [separator.join(row[names.index(title)] for title in titles) for row in rows]
    form, text = (
        rating_text.Form.of(separator.strip(" ").encode() or b" ", separator.encode().join(titles)),
        "\n".join(lines),
    )
    assert form.columns == (titles.index(b"user"), titles.index(b"item"), titles.index(b"rating"))
    fast = rating_text._read_chunk(text.encode() + b"\n", form)
    try:
        careful = rating_text._read_lines(text.encode(), 0, form)
    except rating_text.BadLine:
        assert fast is None
    else:
        assert fast is None or [one.tolist() for one in vars(fast).values()] == [
            one.tolist() for one in vars(careful).values()
        ]


@settings(max_examples=60)
@given(st.lists(st.tuples(WORDS, WORDS, st.sampled_from(["1", "-2.5", "3e-1", "+4."]), st.booleans()), min_size=1),
       SEPARATORS)  # fmt: skip
def test_both_readers_agree(lines, separator):
    words = [[user, item, rating, *(["978"] if timed else [])] for user, item, rating, timed in lines]
    text = "".join(separator.join(line) + "\n" for line in words).encode()
    fast, careful = rating_text.parse(text), rating_text._read_lines(text, 0)
    assert [array.tolist() for array in vars(fast).values()] == [array.tolist() for array in vars(careful).values()]
    assert rating_text.as_text(careful.users).tolist() == [line[0].encode() for line in words]


def test_many_lines_are_read_at_once():
    for form in ("spaces", "tabs", "commas", "colons"):
        assert rating_text._read_chunk(f"{FORMS[form]}\n".encode())
    titles, _, lines = FORMS["the rating last"].encode().partition(b"\n")
    assert rating_text._read_chunk(lines, rating_text.Form.of(b",", titles))


@pytest.fixture
def some(write):
    rng = np.random.default_rng(1)
    lines = {(int(u), int(i)) for u, i in zip(rng.zipf(1.3, 4000) % 300, rng.integers(0, 2000, 4000), strict=True)}
    return write("".join(f"{u} {i} {(u * i) % 5}\n" for u, i in sorted(lines)))


@pytest.mark.parametrize("hosts", ["a", "aaa", "abab"])
def test_every_user_is_on_one_rank(some, hosts):
    whole = opened(some)
    parts = run_ranks(lambda transport: load_ratings(some, transport=transport), hosts)
    assert sorted(row for part in parts for row in triples(part)) == sorted(triples(whole))
    users = [set(part.users.tolist()) for part in parts]
    assert sum(map(len, users)) == len(set.union(*users))
    for part in parts:
        assert (part.user_ids == whole.user_ids).all() and (part.item_ids == whole.item_ids).all()
        assert abs(part.ratings.size - whole.ratings.size / len(hosts)) <= 0.05 * whole.ratings.size
        assert (np.diff(part.users) >= 0).all()


def test_more_ranks_than_users(write):
    path = write("1 1 1\n1 2 2\n2 1 3\n")
    parts = run_ranks(lambda transport: load_ratings(path, transport=transport), "aaaa")
    assert sorted(part.ratings.size for part in parts) == [0, 0, 1, 2]
    assert all(part.user_ids.tolist() == [1, 2] for part in parts)


@settings(max_examples=50)
@given(st.lists(st.integers(0, 40), max_size=60), st.integers(1, 9), st.sampled_from([0, 1, 4, 1024]))
def test_deal_is_even(counts, ranks, heavy):
    counts = np.array(counts, np.int64)
    with mock.patch.object(dealing, "HEAVY", heavy):
        owners = dealing.deal(counts, ranks)
    loads = np.bincount(owners, weights=counts, minlength=ranks)
    assert owners.size == counts.size and loads.size == ranks
    assert loads.max() - loads.min() <= 2 * counts.max(initial=0)


def test_ranks_that_disagree(write):
    paths = [write("1 1 1\n", "a.txt"), write("1 1 1\n", "b.txt")]
    error = same_error(run_ranks(lambda transport: load_ratings(paths[transport.rank], transport=transport), "ab"))
    assert "ranks disagree on path" in str(error)


def count_parses(monkeypatch):
    parses = []
    read = rating_text.read
    monkeypatch.setattr(rating_text, "read", lambda path: parses.append(path) or read(path))
    return parses


def test_parsed_once_by_one_rank_of_a_host(write, monkeypatch):
    path, parses = write(FORMS["commas"]), count_parses(monkeypatch)
    for _ in range(2):
        parts = run_ranks(lambda transport: open_ratings(path, transport=transport), "aaa")
        assert [triples(part) for part in parts] == [TRIPLES] * 3 and len(parses) == 1
    owner = parts[0].ratings
    while isinstance(owner, np.ndarray) and not isinstance(owner, np.memmap):
        owner = owner.base
    assert isinstance(owner, np.memmap)


def test_public():
    assert malt.load_ratings is load_ratings and malt.open_ratings is open_ratings and malt.Ratings is ratings.Ratings


def test_real_ratings(data, monkeypatch):
    path, parses = str(data / "jester" / "train.txt.xz"), count_parses(monkeypatch)
    whole = opened(path)
    assert (whole.ratings.size, whole.user_ids.size, whole.item_ids.size) == (1_629_403, 24_983, 100)
    assert (whole.users[0], whole.items[0], whole.ratings[0]) == (0, 1, np.float32(8.79))
    opened(path)
    assert len(parses) <= 1  # a cache may lie there from before


@pytest.mark.parametrize("seed", range(20))
def test_users_of_failed_ranks_are_inherited_and_live_ranks_keep_theirs(seed):
    choose = np.random.default_rng(seed)
    ranks = int(choose.integers(2, 9))
    owners = choose.integers(0, ranks, 3000).astype(np.int32)
    before, failed = owners, set()
    for rank in choose.permutation(ranks)[: ranks - 1].tolist():
        failed.add(rank)
        heirs = dealing.inherit(owners, failed, ranks)
        alive = [one for one in range(ranks) if one not in failed]
        assert set(heirs.tolist()) <= set(alive)
        assert (heirs[before != rank] == before[before != rank]).all()  # live ranks keep what they had
        inherited = np.bincount(heirs[before == rank], minlength=ranks)[alive]
        assert inherited.max() < 2 * inherited.mean() + 50
        before = heirs
