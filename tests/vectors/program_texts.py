"""The program texts of vectors/program, written by hand: a step, and what is not read as one.

Nothing of tallystick is imported. Each change below breaks one rule of PROGRAM, and the clause
beside it is that rule.
"""

from __future__ import annotations

GOOD = """\
tallystick program 1
contract ordered/1-draft.1
input batch batch.x f32[2,3]
input state buffer.kept f32[2]
input state param.w f32[3,2]
input rng rng i64[2]
input scalar scalar.lr f64[]
%0 = aten.mm(@batch.x, @param.w) : f32[2,2]
%1 = tallystick.dropout_mask(@rng){draw=0, p=0x1.0000000000000p-2, shape=[2,2]} : bool[2,2]
%2 = tallystick.mask_scale(%0, %1){scale=0x1.5555555555555p+0} : f32[2,2]
%3 = aten.gelu(%2){approximate="none"} : f32[2,2]
%4 = aten.native_layer_norm(%3, none, none){eps=0x1.4f8b588e368f1p-17, normalized_shape=[2]}\
 : f32[2,2], f32[2,1], f32[2,1]
%5 = aten.sum(%4.0) : f32[]
%6 = aten.full(){dtype="f32", size=[2,2], value=0x1.0000000000000p+0} : f32[2,2]
%7 = aten.native_layer_norm_backward(%6, %3, %4.1, %4.2, none, none)\
{normalized_shape=[2], output_mask=[true,false,false]} : f32[2,2]
%8 = aten.permute(@batch.x){dims=[1,0]} : f32[3,2]
%9 = aten.mm(%8, %7) : f32[3,2]
%10 = tallystick.sgd_step(@param.w, %9, none, @scalar.lr)\
{dampening=0x0.0p+0, momentum=0x0.0p+0, nesterov=false, weight_decay=0x0.0p+0} : f32[3,2]
%11 = tallystick.commit(@buffer.kept, %10) : none
output buffer.kept @buffer.kept
output loss %5
output param.w %10
end
"""

SMALL = """\
tallystick program 1
contract ordered/1-draft.1
input batch batch.x f32[2]
%0 = aten.add.Scalar(@batch.x){alpha=0x1.0000000000000p+0, other=0x1.8000000000000p+1} : f32[2]
output output.y %0
end
"""

_CONTRACT = "contract ordered/1-draft.1"
_GELU = 'aten.gelu(%2){approximate="none"}'
_MM = "aten.mm(@batch.x, @param.w)"
_SGD = "dampening=0x0.0p+0, momentum=0x0.0p+0, nesterov=false, weight_decay=0x0.0p+0"
_OTHER = "other=0x1.8000000000000p+1"
_ADD = f"aten.add.Scalar(@batch.x){{alpha=0x1.0000000000000p+0, {_OTHER}}} : f32[2]"
_COMMIT = "%11 = tallystick.commit(@buffer.kept, %10) : none\n"
_NEXT = "output buffer.kept @buffer.kept\noutput loss %5\noutput param.w %10\n"

Change = tuple[str, str, str, str]

# Well formed all the same: (name, clause, old, new) of GOOD.
GOOD_CHANGES: list[Change] = [
    ("rounded contract", "2.1", _CONTRACT, "contract rounded/1-draft.1"),
    ("rounded contract with a setting", "2.1", _CONTRACT, "contract rounded/1-draft.1;b=27"),
    ("bounded contract", "2.1", _CONTRACT, "contract replay/1-draft.1;b=27;form=bounded"),
    (
        "published contract", "2.1", _CONTRACT,
        "contract replay/1-draft.1;b=32;form=published;scale=binary;tau=32768",
    ),
    (
        "published contract with thresholds", "2.1", _CONTRACT,
        "contract replay/1-draft.1;b=32;form=published;scale=decimal;tau=5;tau.aten.mm=7",
    ),
    ("another attribute value", "2.7", "draw=0", "draw=4294967295"),
    ("negative zero", "2.5", "weight_decay=0x0.0p+0", "weight_decay=-0x0.0p+0"),
    ("another string", "2.5", 'approximate="none"', 'approximate="tanh"'),
    ("absent operands left out", "NUMERICS 16.1", "(%3, none, none)", "(%3)"),
    ("a node that nothing needs", "3.5", "%11 = ", "%11 = aten.sum(%2) : f32[]\n%12 = "),
    ("metric before the state", "1.4", "output param.w", "output metric.a %2\noutput param.w"),
]  # fmt: skip

# Well formed, each with its whole text.
GOOD_SMALL: list[Change] = [
    ("subnormal float", "2.5", _OTHER, "other=0x0.0000000000001p-1022"),
    ("infinity", "2.5", _OTHER, "other=inf"),
    ("negative infinity", "2.5", _OTHER, "other=-inf"),
    ("not a number", "2.5", _OTHER, "other=nan"),
    ("empty list", "2.5", _ADD, "aten.sum.dim_IntList(@batch.x){dim=[], keepdim=false} : f32[]"),
    ("negative integer", "2.2", _ADD, "aten._softmax(@batch.x){dim=-1} : f32[2]"),
    ("optional attribute absent", "2.5", _ADD, "aten.clamp(@batch.x){max=inf} : f32[2]"),
    ("every character of a name", "2.3", "output.y", "Az09_.:/-"),
    ("no nodes", "1.1", f"%0 = {_ADD}\noutput output.y %0", "output output.y @batch.x"),
    ("no outputs", "1.1", "output output.y %0\n", ""),
]

MALFORMED: list[Change] = [
    # the lines
    ("carriage returns", "2.1", "lr f64[]\n", "lr f64[]\r\n"),
    ("no last line feed", "2.1", "end\n", "end"),
    ("text after the end", "2.1", "end\n", "end\n\n"),
    ("end twice", "2.1", "end\n", "end\nend\n"),
    ("no end", "2.1", "end\n", ""),
    ("empty line", "2.1", "input batch", "\ninput batch"),
    ("comment", "2.1", "input batch", "# the records\ninput batch"),
    ("trailing space", "2.1", "draft.1\n", "draft.1 \n"),
    ("leading space", "2.1", "input batch", " input batch"),
    ("tab", "2.1", "input batch batch.x", "input\tbatch batch.x"),
    ("two spaces", "2.1", "input batch batch.x", "input batch  batch.x"),
    ("zero byte", "2.1", "output loss", "output lo\x00ss"),
    ("form feed", "2.1", "output loss %5\n", "output loss %5\x0c"),
    ("letter beyond ASCII", "2.1", "output loss", "output löss"),
    ("byte order mark", "2.1", "tallystick program", "\ufefftallystick program"),
    ("another header", "2.1", "tallystick program 1", "tallystick programme 1"),
    ("header with a zero", "2.1", "tallystick program 1", "tallystick program 01"),
    ("version of the future", "2.1", "tallystick program 1", "tallystick program 2"),
    ("no header", "2.1", "tallystick program 1\n", ""),
    ("no contract", "2.1", _CONTRACT + "\n", ""),
    ("contract twice", "2.1", _CONTRACT, f"{_CONTRACT}\n{_CONTRACT}"),
    ("input after a node", "2.1", "%1 = ", "input state zz f32[]\n%1 = "),
    ("node after an output", "2.1",
     "output loss %5\n", "output loss %5\n%12 = aten.sum(%2) : f32[]\n"),
    ("input after an output", "2.1", "output loss %5\n", "output loss %5\ninput state zz f32[]\n"),
    ("an unknown line", "2.1", "%0 = ", "constant @c f32[]\n%0 = "),
    # the contract
    ("contract of the future", "2.1", _CONTRACT, "contract ordered/9"),
    ("unknown contract", "2.1", _CONTRACT, "contract guessed/1"),
    ("contract without a version", "2.1", _CONTRACT, "contract ordered"),
    ("contract in upper case", "2.1", _CONTRACT, "contract Ordered/1-draft.1"),
    ("abbreviated contract", "NUMERICS 13.1", _CONTRACT, "contract ordered/1"),
    ("ordered contract with a setting", "NUMERICS 13.1", _CONTRACT, _CONTRACT + ";b=27"),
    ("setting of the default", "NUMERICS 13.1", _CONTRACT, "contract rounded/1-draft.1;b=32"),
    ("bits below 20", "NUMERICS 13.1", _CONTRACT, "contract rounded/1-draft.1;b=19"),
    ("bits above 32", "NUMERICS 13.1", _CONTRACT, "contract rounded/1-draft.1;b=33"),
    ("bits with a zero", "NUMERICS 13.1", _CONTRACT, "contract rounded/1-draft.1;b=027"),
    ("bits twice", "NUMERICS 13.1", _CONTRACT, "contract rounded/1-draft.1;b=27;b=27"),
    ("empty setting", "2.1", _CONTRACT, "contract rounded/1-draft.1;b="),
    ("setting without a key", "2.1", _CONTRACT, "contract rounded/1-draft.1;=27"),
    ("semicolon at the end", "2.1", _CONTRACT, "contract rounded/1-draft.1;"),
    ("form missing", "NUMERICS 14.1", _CONTRACT, "contract replay/1-draft.1;b=27"),
    ("bits missing", "NUMERICS 14.1", _CONTRACT, "contract replay/1-draft.1;form=bounded"),
    ("settings out of order", "NUMERICS 14.1",
     _CONTRACT, "contract replay/1-draft.1;form=bounded;b=27"),
    ("unknown form", "NUMERICS 14.1", _CONTRACT, "contract replay/1-draft.1;b=27;form=open"),
    ("bounded with a scale", "NUMERICS 14.1",
     _CONTRACT, "contract replay/1-draft.1;b=27;form=bounded;scale=binary"),
    ("published without a scale", "NUMERICS 14.1",
     _CONTRACT, "contract replay/1-draft.1;b=27;form=published"),
    ("published without a threshold", "NUMERICS 14.1",
     _CONTRACT, "contract replay/1-draft.1;b=27;form=published;scale=binary"),
    ("unknown scale", "NUMERICS 14.1",
     _CONTRACT, "contract replay/1-draft.1;b=27;form=published;scale=octal;tau=5"),
    ("thresholds out of order", "NUMERICS 14.1",
     _CONTRACT,
     "contract replay/1-draft.1;b=27;form=published;scale=binary;tau=5"
     ";tau.aten.mm=7;tau.aten.bmm=7"),
    ("threshold of the default", "NUMERICS 14.1",
     _CONTRACT, "contract replay/1-draft.1;b=27;form=published;scale=binary;tau=5;tau.aten.mm=5"),
    ("101 settings", "2.1", _CONTRACT, "contract rounded/1-draft.1" + ";b=27" * 101),
    ("contract over 1024 bytes", "2.1",
     _CONTRACT, "contract rounded/1-draft.1;b=27" + (";" + "k" * 80 + "=1") * 13),
    # inputs
    ("unknown kind", "1.2", "input batch batch.x", "input data batch.x"),
    ("batch with another name", "1.2", "input state buffer.kept", "input batch buffer.kept"),
    ("state with a batch name", "1.2", "input batch batch.x", "input state batch.x"),
    ("state with a scalar name", "1.2", "input scalar scalar.lr", "input state scalar.lr"),
    ("state named rng", "1.2", "input rng rng", "input state rng"),
    ("rng with another name", "1.2", "input state param.w f32[3,2]", "input rng param.w f32[3,2]"),
    ("scalar that is not f64", "1.2", "scalar.lr f64[]", "scalar.lr f32[]"),
    ("scalar with an axis", "1.2", "scalar.lr f64[]", "scalar.lr f64[1]"),
    ("rng of another shape", "1.2", "rng i64[2]", "rng i64[4]"),
    ("rng of another dtype", "1.2", "rng i64[2]", "rng i32[2]"),
    ("inputs out of order", "1.2",
     "input state buffer.kept f32[2]\ninput state param.w f32[3,2]\n",
     "input state param.w f32[3,2]\ninput state buffer.kept f32[2]\n"),
    ("input twice", "1.2",
     "input rng rng i64[2]\n", "input rng rng i64[2]\ninput rng rng i64[2]\n"),
    ("input without a type", "2.1", "input state buffer.kept f32[2]", "input state buffer.kept"),
    ("input with a value", "2.1",
     "input state buffer.kept f32[2]", "input state buffer.kept f32[2] 0"),
    # names
    ("name with a bracket", "2.3", "output loss", "output lo(ss"),
    ("name with an at sign", "2.3", "output loss", "output lo@ss"),
    ("name with a plus", "2.3", "output loss", "output lo+ss"),
    ("name in quotes", "2.3", "output loss", 'output "loss"'),
    ("empty name", "2.3", "output loss", "output "),
    # types
    ("unknown dtype", "2.1", "buffer.kept f32[2]", "buffer.kept f8[2]"),
    ("dtype in upper case", "2.1", "buffer.kept f32[2]", "buffer.kept F32[2]"),
    ("no brackets", "2.1", "scalar.lr f64[]", "scalar.lr f64"),
    ("space in a shape", "2.1", "param.w f32[3,2]", "param.w f32[3, 2]"),
    ("comma at the end of a shape", "2.1", "param.w f32[3,2]", "param.w f32[3,2,]"),
    ("size with a zero", "2.2", "param.w f32[3,2]", "param.w f32[03,2]"),
    ("size with a plus", "2.2", "param.w f32[3,2]", "param.w f32[+3,2]"),
    ("negative size", "2.1", "buffer.kept f32[2]", "buffer.kept f32[-2]"),
    ("size that is a name", "2.1", "buffer.kept f32[2]", "buffer.kept f32[n]"),
    ("size beyond 64 bits", "2.2", "buffer.kept f32[2]", "buffer.kept f32[18446744073709551616]"),
    ("17 axes", "3.1", "buffer.kept f32[2]", "buffer.kept f32[" + "1," * 16 + "1]"),
    ("tensor over the limit", "3.1", "buffer.kept f32[2]", "buffer.kept f32[274877906945]"),
    ("sizes whose product wraps around", "3.1",
     "buffer.kept f32[2]", "buffer.kept f32[4294967296,4294967296]"),
    # nodes
    ("node 0 is missing", "2.2", "%0 = ", "%12 = "),
    ("node numbered anew", "2.2", "%6 = ", "%7 = "),
    ("node index with a zero", "2.2", "%6 = ", "%06 = "),
    ("node index negative", "2.2", "%6 = ", "%-6 = "),
    ("no index", "2.1", "%6 = ", "% = "),
    ("no equals sign", "2.1", "%6 = ", "%6 "),
    ("no brackets of operands", "2.1", "aten.full()", "aten.full"),
    ("no types", "2.1", "aten.sum(%4.0) : f32[]", "aten.sum(%4.0)"),
    ("no space before the colon", "2.1", "aten.sum(%4.0) : f32[]", "aten.sum(%4.0): f32[]"),
    ("unknown operator", "3.2", "aten.sum(%4.0)", "aten.total(%4.0)"),
    ("operator without its overload", "2.1", "aten.native_layer_norm(", "aten.native_layer("),
    ("operator in upper case", "3.2", "aten.sum(%4.0)", "aten.SUM(%4.0)"),
    ("no operator", "2.1", "aten.sum(%4.0)", "(%4.0)"),
    ("no space between operands", "2.1", _MM, "aten.mm(@batch.x,@param.w)"),
    ("comma at the end of operands", "2.1", _MM, "aten.mm(@batch.x, @param.w, )"),
    ("operand without a sign", "2.1", _MM, "aten.mm(batch.x, @param.w)"),
    ("operand that is a number", "2.1", _MM, "aten.mm(0x1.0000000000000p+0, @param.w)"),
    ("unknown input", "3.3", _MM, "aten.mm(@batch.x, @param.v)"),
    ("operand of the node itself", "3.3", "aten.gelu(%2)", "aten.gelu(%3)"),
    ("operand of a later node", "3.3", "aten.gelu(%2)", "aten.gelu(%6)"),
    ("operand of no node", "3.3", "aten.gelu(%2)", "aten.gelu(%99)"),
    ("operand index with a zero", "2.2", "aten.gelu(%2)", "aten.gelu(%02)"),
    ("operand index beyond 64 bits", "2.2", "aten.gelu(%2)", "aten.gelu(%18446744073709551618)"),
    ("number of the only output", "2.4", "aten.gelu(%2)", "aten.gelu(%2.0)"),
    ("no number of several outputs", "2.4", "aten.sum(%4.0)", "aten.sum(%4)"),
    ("number of an output with a zero", "2.4", "aten.sum(%4.0)", "aten.sum(%4.00)"),
    ("output that the node has not", "3.3", "aten.sum(%4.0)", "aten.sum(%4.3)"),
    ("output of an only output", "3.3", "aten.gelu(%2)", "aten.gelu(%2.1)"),
    ("absent operand that is needed", "1.3", _MM, "aten.mm(@batch.x, none)"),
    ("operand too few", "3.2", _MM, "aten.mm(@batch.x)"),
    ("operand too many", "3.2", _MM, "aten.mm(@batch.x, @param.w, @param.w)"),
    ("absent operand too many", "3.2", _MM, "aten.mm(@batch.x, @param.w, none)"),
    ("operands that do not fit", "3.2", _MM, "aten.mm(@param.w, @param.w)"),
    ("operand of another dtype", "3.2", _MM, "aten.mm(@batch.x, @scalar.lr)"),
    ("output of another shape", "3.2", "aten.sum(%4.0) : f32[]", "aten.sum(%4.0) : f32[1]"),
    ("output of another dtype", "3.2", "aten.sum(%4.0) : f32[]", "aten.sum(%4.0) : f64[]"),
    ("output too many", "3.2", "aten.sum(%4.0) : f32[]", "aten.sum(%4.0) : f32[], f32[]"),
    ("output too few", "3.2", "[2]} : f32[2,2], f32[2,1], f32[2,1]", "[2]} : f32[2,2], f32[2,1]"),
    ("no output", "3.2", "aten.sum(%4.0) : f32[]", "aten.sum(%4.0) : none"),
    ("output of the commit node", "3.2", "%10) : none", "%10) : f32[]"),
    ("no space between types", "2.1",
     "[2]} : f32[2,2], f32[2,1], f32[2,1]", "[2]} : f32[2,2],f32[2,1], f32[2,1]"),
    # attributes
    ("empty braces", "2.5", _MM, _MM + "{}"),
    ("space before the braces", "2.1", _GELU, 'aten.gelu(%2) {approximate="none"}'),
    ("space inside the braces", "2.1", _GELU, 'aten.gelu(%2){ approximate="none"}'),
    ("space about an equals sign", "2.1", _GELU, 'aten.gelu(%2){approximate = "none"}'),
    ("no space between attributes", "2.1", "draw=0, p=", "draw=0,p="),
    ("comma at the end of attributes", "2.1", _GELU, 'aten.gelu(%2){approximate="none", }'),
    ("attribute missing", "2.5", "draw=0, ", ""),
    ("all attributes missing", "2.5", _GELU, "aten.gelu(%2)"),
    ("attribute twice", "2.5", "draw=0, ", "draw=0, draw=0, "),
    ("attributes out of order", "2.5",
     "draw=0, p=0x1.0000000000000p-2", "p=0x1.0000000000000p-2, draw=0"),
    ("unknown attribute", "3.2", "draw=0", "drawn=0"),
    ("attribute of another operator", "3.2", _MM, _MM + "{keepdim=false}"),
    ("attribute without a value", "2.1", "draw=0", "draw="),
    ("integer with a zero", "2.2", "draw=0", "draw=00"),
    ("integer with a plus", "2.2", "draw=0", "draw=+1"),
    ("integer minus zero", "2.2", "draw=0", "draw=-0"),
    ("integer in hexadecimal", "2.2", "draw=0", "draw=0x0"),
    ("integer with a point", "2.5", "draw=0", "draw=0.0"),
    ("integer beyond 64 bits", "2.2", "draw=0", "draw=9223372036854775808"),
    ("bool for an integer", "3.2", "draw=0", "draw=false"),
    ("integer for a bool", "3.2", "nesterov=false", "nesterov=0"),
    ("bool in upper case", "2.5", "nesterov=false", "nesterov=False"),
    ("integer for a float", "3.2", "weight_decay=0x0.0p+0", "weight_decay=0"),
    ("decimal float", "2.5", "p=0x1.0000000000000p-2", "p=0.25"),
    ("short float", "2.5", "p=0x1.0000000000000p-2", "p=0x1p-2"),
    ("long zero", "2.5", "weight_decay=0x0.0p+0", "weight_decay=0x0.0000000000000p+0"),
    ("upper-case float", "2.5", "0x1.5555555555555p+0", "0X1.5555555555555P+0"),
    ("upper-case digits", "2.5", "0x1.4f8b588e368f1p-17", "0x1.4F8B588E368F1p-17"),
    ("exponent without a sign", "2.5", "0x1.5555555555555p+0", "0x1.5555555555555p0"),
    ("exponent with a zero", "2.5", "0x1.5555555555555p+0", "0x1.5555555555555p+00"),
    ("two digits before the point", "2.5", "0x1.5555555555555p+0", "0x2.aaaaaaaaaaaaap-1"),
    ("fourteen digits after the point", "2.5", "0x1.5555555555555p+0", "0x1.55555555555550p+0"),
    ("float with a plus", "2.5", "0x1.5555555555555p+0", "+0x1.5555555555555p+0"),
    ("float that overflows", "2.5", "0x1.5555555555555p+0", "0x1.5555555555555p+1024"),
    ("infinity spelt out", "2.5", "0x1.5555555555555p+0", "infinity"),
    ("float that is a word", "2.5", "0x1.5555555555555p+0", "large"),
    ("string without quotes", "2.5", 'approximate="none"', "approximate=none"),
    ("string in single quotes", "2.5", 'approximate="none"', "approximate='none'"),
    ("string that is not closed", "2.5", 'approximate="none"', 'approximate="none'),
    ("string with a space", "2.5", 'approximate="none"', 'approximate="no ne"'),
    ("string that is no choice", "3.2", 'approximate="none"', 'approximate="fast"'),
    ("empty string that is no choice", "3.2", 'approximate="none"', 'approximate=""'),
    ("dtype without quotes", "2.5", 'dtype="f32"', "dtype=f32"),
    ("dtype that is none", "3.2", 'dtype="f32"', 'dtype="f16"'),
    ("list with a space", "2.5", "size=[2,2]", "size=[2, 2]"),
    ("list in round brackets", "2.5", "size=[2,2]", "size=(2,2)"),
    ("list that is not closed", "2.5", "size=[2,2]", "size=[2,2"),
    ("comma at the end of a list", "2.5", "size=[2,2]", "size=[2,2,]"),
    ("list of lists", "2.5", "size=[2,2]", "size=[[2,2]]"),
    ("list of both kinds", "2.5", "[true,false,false]", "[true,0,0]"),
    ("integers for bools", "3.2", "[true,false,false]", "[1,0,0]"),
    ("integer for a list", "3.2", "dims=[1,0]", "dims=1"),
    ("list for an integer", "3.2", "draw=0", "draw=[0]"),
    ("list too short", "3.2", "[true,false,false]", "[true,false]"),
    ("size in a list negative", "NUMERICS 15.3", "size=[2,2]", "size=[-2,-2]"),
    ("axis twice", "NUMERICS 15.4", "dims=[1,0]", "dims=[1,1]"),
    ("axis negative", "NUMERICS 15.4", "dims=[1,0]", "dims=[-1,0]"),
    ("axis too many", "NUMERICS 15.4", "dims=[1,0]", "dims=[1,0,2]"),
    ("draw negative", "NUMERICS 15.3", "draw=0", "draw=-1"),
    ("draw beyond 32 bits", "NUMERICS 15.3", "draw=0", "draw=4294967296"),
    ("probability one", "NUMERICS 15.4", "p=0x1.0000000000000p-2", "p=0x1.0000000000000p+0"),
    ("probability negative", "NUMERICS 15.4", "p=0x1.0000000000000p-2", "p=-0x1.0000000000000p-2"),
    ("probability not a number", "NUMERICS 15.4", "p=0x1.0000000000000p-2", "p=nan"),
    ("momentum without its buffer", "NUMERICS 16.8",
     "momentum=0x0.0p+0", "momentum=0x1.0000000000000p-1"),
    ("normalized shape empty", "NUMERICS 15.4",
     "p-17, normalized_shape=[2]", "p-17, normalized_shape=[]"),
    # outputs
    ("outputs out of order", "1.4",
     "output loss %5\noutput param.w %10\n", "output param.w %10\noutput loss %5\n"),
    ("output twice", "1.4", "output loss %5\n", "output loss %5\noutput loss %5\n"),
    ("output none", "2.1", "output loss %5", "output loss none"),
    ("output without a value", "2.1", "output loss %5", "output loss"),
    ("output with two values", "2.1", "output loss %5", "output loss %5 %5"),
    ("output of no node", "3.3", "output loss %5", "output loss %12"),
    ("output of the commit node's", "3.3", "output loss %5", "output loss %11"),
    ("output of no input", "3.3", "output loss %5", "output loss @loss"),
    ("number of an only output, output", "2.4", "output loss %5", "output loss %5.0"),
    # state
    ("slot without a next state", "3.4", "output buffer.kept @buffer.kept\n", ""),
    ("next state of another type", "3.4", "output param.w %10", "output param.w %0"),
    ("commit leaves a slot out", "3.4", "commit(@buffer.kept, %10)", "commit(%10)"),
    ("commit in another order", "3.4", "commit(@buffer.kept, %10)", "commit(%10, @buffer.kept)"),
    ("commit of the old state", "3.4",
     "commit(@buffer.kept, %10)", "commit(@buffer.kept, @param.w)"),
    ("commit of something more", "3.4",
     "commit(@buffer.kept, %10)", "commit(@buffer.kept, %10, %5)"),
    ("commit with an attribute", "3.2",
     "commit(@buffer.kept, %10)", "commit(@buffer.kept, %10){keep=1}"),
    ("no commit node", "3.4", _COMMIT, ""),
    ("two commit nodes", "3.4", _COMMIT, _COMMIT + _COMMIT.replace("%11", "%12")),
    ("a node after the commit node", "3.4", _COMMIT, _COMMIT + "%12 = aten.sum(%2) : f32[]\n"),
    ("commit node without a next state", "3.4", _NEXT, "output loss %5\n"),
]  # fmt: skip

MALFORMED_SMALL: list[Change] = [
    ("clamp without a bound", "NUMERICS 10.4", _ADD, "aten.clamp(@batch.x) : f32[2]"),
    ("commit node of nothing", "3.4",
     "output output.y", "%1 = tallystick.commit() : none\noutput output.y"),
]  # fmt: skip

WHOLE: list[tuple[str, str, bytes]] = [
    ("nothing", "2.1", b""),
    ("a line feed", "2.1", b"\n"),
    ("only an end", "2.1", b"end\n"),
    ("only a header", "2.1", b"tallystick program 1\n"),
    ("only a header and an end", "2.1", b"tallystick program 1\nend\n"),
    ("JSON", "2.1", b"{}"),
    ("a pickle", "2.1", b"\x80\x04N."),
    ("not UTF-8", "2.1", GOOD.encode().replace(b"loss", b"lo\xffss")),
    ("UTF-16", "2.1", GOOD.encode("utf-16-le")),
]

Parts = list[tuple[str, int]]
_HEAD = "tallystick program 1\ncontract ordered/1-draft.1\n"
# At a limit of COMMITMENTS 11.1, or just beyond it: pieces and how often each is repeated.
AT_LIMIT: list[tuple[str, str, bool, Parts]] = [
    ("name of 1024 bytes", "COMMITMENTS 11.1", True,
     [(_HEAD + "input state ", 1), ("n", 1024), (" f32[]\nend\n", 1)]),
    ("name of 1025 bytes", "COMMITMENTS 11.1", False,
     [(_HEAD + "input state ", 1), ("n", 1025), (" f32[]\nend\n", 1)]),
    ("16 axes", "COMMITMENTS 11.1", True,
     [(_HEAD + "input state s f32[", 1), ("1,", 15), ("1]\nend\n", 1)]),
    ("17 axes of one", "COMMITMENTS 11.1", False,
     [(_HEAD + "input state s f32[", 1), ("1,", 16), ("1]\nend\n", 1)]),
    ("tensor of 2^40 bytes", "COMMITMENTS 11.1", True,
     [(_HEAD + "input state s u8[1099511627776]\nend\n", 1)]),
    ("tensor of 2^40 + 1 bytes", "COMMITMENTS 11.1", False,
     [(_HEAD + "input state s u8[1099511627777]\nend\n", 1)]),
    ("size of 2^40 in an empty tensor", "COMMITMENTS 11.1", True,
     [(_HEAD + "input state s f64[0,1099511627776]\nend\n", 1)]),
    ("size over 2^40 in an empty tensor", "COMMITMENTS 11.1", False,
     [(_HEAD + "input state s f64[0,1099511627777]\nend\n", 1)]),
    ("1048593 operands", "COMMITMENTS 11.1", False,
     [(_HEAD + "input state s u8[1]\n%0 = aten.cat(@s", 1), (", @s", 1048592),
      ("){dim=0} : u8[1048593]\noutput y %0\nend\n", 1)]),
    ("attributes of more than 1048576 bytes", "COMMITMENTS 11.1", False,
     [(_HEAD + "%0 = aten.full(){dtype=\"u8\", size=[", 1), ("0,", 524288),
      ("0], value=0x0.0p+0} : u8[0]\noutput y %0\nend\n", 1)]),
    ("text of more than 67108864 bytes", "COMMITMENTS 11.1", False, [("x" * 64, 1048577)]),
]  # fmt: skip
