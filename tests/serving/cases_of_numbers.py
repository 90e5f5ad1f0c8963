"""Numbers in JSON: values of each type, what TensorFlow Serving makes of them, and `kformer serve`.

A row stands for a request `{"signature_name": SIGNATURE, "inputs": [VALUE, ...]}`, whose answer has the same values. The
sources are those of cases_of_bodies.py.
"""

from typing import NamedTuple


class Number(NamedTuple):
    """Answers are values, or a status, or a status and what the error says."""

    what: str
    signature: str
    values: str
    theirs: object
    ours: object = None  # None: as theirs
    differs: str = ""


_WRONG = (400, "not of expected type")

# fmt: off
NUMBERS = [
    Number("whole and decimal numbers", "float32", "1, 2.0, -3, 0.5, 0.0, -0.0", "1.0, 2.0, -3.0, 0.5, 0.0, -0.0"),
    Number("whole and decimal numbers", "float64", "1, 2.0, -3, 0.5, 0.0, -0.0", "1.0, 2.0, -3.0, 0.5, 0.0, -0.0"),
    Number("exponents", "float32", "1e3, 1E3, 1e+3, 25e-1", "1000.0, 1000.0, 1000.0, 2.5"),
    Number("a whole number that float32 does not have", "float32", "1435774380", "1435774336.0"),
    Number("the same with a point", "float32", "1435774380.0", "1435774336.0"),
    Number("a number that float64 has", "float64", "1435774380.123", "1435774380.123"),
    Number("more digits than float64 has", "float64", "0.1000000000000000000000001", "0.1"),
    Number("a whole number beyond 64 bits", "float64", "123456789012345678901234567890", "1.2345678901234568e29"),
    Number("the largest of float64", "float64", "1.7976931348623157e308", "1.7976931348623157e308"),
    Number("the largest of float64: infinite", "float32", "1.7976931348623157e308", "Infinity"),
    Number("the least of float64: infinite", "float32", "-1.7976931348623157e308", "-Infinity"),
    Number("the smallest normal number of float64: zero", "float32", "2.2250738585072014e-308", "0.0"),
    Number("the same below zero", "float32", "-2.2250738585072014e-308", "-0.0"),
    Number("a number that is too small for float64: zero", "float64", "1e-999", "0.0"),
    Number("a number beyond float64", "float64", "1e999", (400, "JSON Parse error"), "Infinity", "too large"),
    Number("a number beyond float64, in float32", "float32", "-1e999", (400, "JSON Parse error"), "-Infinity", "too large"),
    Number("a whole number of 5,000 digits", "float64", "9" * 5000, (400, "JSON Parse error")),
    Number("numbers that print with six digits or fewer", "float32", "9000000, 999999, 0.5, 0.0003, 0.00003, 555557.5", "9000000.0, 999999.0, 0.5, 0.0003, 0.00003, 555557.5"),
    Number("NaN and Infinity", "float32", "NaN, Infinity, -Infinity", "NaN, Infinity, -Infinity"),
    Number("NaN and Infinity", "float64", "NaN, Infinity, -Infinity", "NaN, Infinity, -Infinity"),
    Number("Inf", "float32", "Inf", "Infinity", (400, "JSON Parse error"), "tokens"),
    Number("-Inf", "float32", "-Inf", "-Infinity", (400, "JSON Parse error"), "tokens"),
    Number("-NaN", "float32", "-NaN", "NaN", (400, "JSON Parse error"), "tokens"),
    Number("nan", "float32", "nan", (400, "JSON Parse error")),
    Number("infinity", "float32", "infinity", (400, "JSON Parse error")),
    Number("Infinit", "float32", "Infinit", (400, "JSON Parse error")),
    Number("a plus sign", "float32", "+1", (400, "JSON Parse error")),
    Number("a zero in front", "float32", "01", (400, "JSON Parse error")),
    Number("a point in front", "float32", ".5", (400, "JSON Parse error")),
    Number("a point at the end", "float32", "5.", (400, "JSON Parse error")),
    Number("an exponent without digits", "float32", "1e", (400, "JSON Parse error")),
    Number("a sign alone", "float32", "-", (400, "JSON Parse error")),
    Number("hexadecimal", "int32", "0x10", (400, "JSON Parse error")),
    Number("a text for a number", "float32", '"1"', (400, "not of expected type: float")),
    Number("true for a number", "float32", "true", (400, "not of expected type: float")),
    Number("null for a number", "float32", "null", (400, "not of expected type: float")),
    Number("an object for a number", "float32", "1, {}", (400, "not of expected type: float")),
    Number("a text for a number", "float64", '"1"', _WRONG),
    Number("all of int8", "int8", "-128, 0, 127", "-128, 0, 127"),
    Number("all of int16", "int16", "-32768, 0, 32767", "-32768, 0, 32767"),
    Number("all of int32", "int32", "-2147483648, -0, 2147483647", "-2147483648, 0, 2147483647"),
    Number("all of int64", "int64", "-9223372036854775808, 0, 9223372036854775807", "-9223372036854775808, 0, 9223372036854775807"),
    Number("all of uint8", "uint8", "0, 255", "0, 255"),
    Number("all of uint32", "uint32", "0, 4294967295", "0, 4294967295"),
    Number("all of uint64", "uint64", "0, 18446744073709551615", "0, 18446744073709551615"),
    Number("beyond int8", "int8", "300", "44", 400, "wrap"),
    Number("beyond int16", "int16", "-32769", "32767", 400, "wrap"),
    Number("below zero in uint8", "uint8", "-1", "255", 400, "wrap"),
    Number("beyond int32 in int8", "int8", "2147483648", 400),
    Number("beyond int32", "int32", "2147483648", 400),
    Number("below int32", "int32", "-2147483649", 400),
    Number("beyond int64", "int64", "9223372036854775808", 400),
    Number("below zero in uint32", "uint32", "-1", 400),
    Number("beyond uint32", "uint32", "4294967296", 400),
    Number("below zero in uint64", "uint64", "-1", 400),
    Number("beyond uint64", "uint64", "18446744073709551616", 400),
    Number("a point in a whole number", "int32", "1.0", _WRONG),
    Number("an exponent in a whole number", "int32", "1e3", _WRONG),
    Number("NaN in a whole number", "int32", "NaN", _WRONG),
    Number("a text in a whole number", "int64", '"1"', _WRONG),
    Number("a point in int64", "int64", "1.5", _WRONG),
    Number("true in a whole number", "int32", "true", _WRONG),
    Number("null in a whole number", "int32", "null", _WRONG),
    Number("true and false", "bool", "true, false", "true, false"),
    Number("numbers as truth", "bool", "1", _WRONG),
    Number("texts as truth", "bool", '"true"', _WRONG),
    Number("True", "bool", "True", (400, "JSON Parse error")),
    Number("float16", "float16", "0.5, 1024, 1", 501, "0.5, 1024.0, 1.0", "half"),
    Number("beyond float16", "float16", "1e6", 501, "Infinity", "half"),
    Number("uint16", "uint16", "0, 65535", 501, "0, 65535", "half"),
    Number("bfloat16", "bfloat16", "0.5", 501),
    Number("complex numbers", "complex64", "0.5", 501),
    Number("an output of bfloat16", "rounded", "0.5", 400, 501, "types"),
    Number("a vector in place of three columns", "shaped", "1, 2, 3", 200, (400, "must be float32 of shape (any, 3)"), "shape"),
    Number("three columns", "shaped", "[1, 2, 3], [4, 5, 6]", "[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]"),
    Number("two columns in place of three", "shaped", "[1, 2]", 200, (400, "must be float32 of shape (any, 3)"), "shape"),
    Number("eight dimensions", "float32", "[[[[[[[1]]]]]]]", "[[[[[[[1.0]]]]]]]"),
    Number("nine dimensions", "float32", "[[[[[[[[1]]]]]]]]", "[[[[[[[[1.0]]]]]]]]", (400, "lists in 9 levels"), "dimensions"),
    Number("255 dimensions", "float32", "[" * 254 + "1" + "]" * 254, 400),
    Number("what the graph refuses", "positive", "-1", (400, "All must be above 0")),
    Number("what the graph takes", "positive", "1", "1.0"),
]
# fmt: on
