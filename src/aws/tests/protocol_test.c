/* Cases of the ec2 and query protocols on two small services made for them (ec2like.api,
 * querylike.api): the situations of the public protocol tests, and what bad input gets. */
#include "aws/codec_in.h"
#include "aws/codec_out.h"
#include "aws/tests/api/ec2like.h"
#include "aws/tests/api/querylike.h"
#include "base/test.h"

#include <errno.h>

static struct arena *arena;

static int reset(void **state)
{
    arena_reset(arena);
    return 0;
}

static const struct aws_service *const ec2 = &aws_service_ec2like, *const query =
                                                                       &aws_service_querylike;

/* Decodes a form into the named shape. Returns the error's text ("" = fine). */
static const char *decode(const struct aws_service *s, const char *shape, const char *form,
                          void **ret)
{
    static struct err err;
    struct aws_params ps = {0};
    int idx = aws_shape_find(s, str_c(shape));
    assert_true(idx >= 0);
    err_clear(&err);
    *ret = arena_xalloc(arena, s->shapes[idx].size);
    int rc = aws_params_parse(arena, &ps, str_c(form), &err);
    rc = rc < 0 ? rc : aws_decode(s, (uint16_t)idx, &ps, arena, *ret, &err);
    assert_int_equal(rc < 0, err.code < 0);
    return rc < 0 ? (const char *)arena_fmt(arena, "%s: %s", err.name, err.msg).p : "";
}

/* The form, decoded and written as XML. */
static const char *xml(const struct aws_service *s, const char *shape, const char *form)
{
    void *v;
    AUTO_BUF out;
    buf_init(&out, 1u << 20);
    const char *wrong = decode(s, shape, form, &v);
    if (*wrong) {
        return wrong;
    }
    aws_encode_struct(s, (uint16_t)aws_shape_find(s, str_c(shape)), v, &out);
    return arena_cstr(arena, buf_str(&out));
}

struct row {
    const char *form, *want;
};

static void check(const struct aws_service *s, const char *shape, const struct row *rows,
                  size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const char *got = xml(s, shape, rows[i].form);
        if (strcmp(got, rows[i].want) != 0) {
            fail_msg("%s\n  got  %s\n  want %s", rows[i].form, got, rows[i].want);
        }
    }
}

static void test_ec2_input(void **state)
{
    static const struct row rows[] = {
        {"Action=X&Version=Y&X-Amz-Date=Z", ""},
        {"Foo=val1&BarLocationName=val2&yuckQueryName=val3",
         "<Foo>val1</Foo><barLocationName>val2</barLocationName><yuckLocationName>val3</"
         "yuckLocationName>"},
        {"Foo=", "<Foo/>"},
        {"Foo=a&Foo=b", "<Foo>b</Foo>"}, /* the last wins */
        {"Foo=a+b%2Bc%26%3c%C3%a9", "<Foo>a b+c&amp;&lt;\xc3\xa9</Foo>"},
        {"Number=10&Big=-9223372036854775808&Flag=true",
         "<Number>10</Number><big>-9223372036854775808</big><flag>true</flag>"},
        {"Flag=FALSE", "<flag>false</flag>"},
        {"Ratio=1.25&Rough=0.1", "<ratio>1.25</ratio><rough>0.1</rough>"},
        {"Rough=NaN", "<rough>NaN</rough>"},
        {"Rough=-Infinity", "<rough>-Infinity</rough>"},
        {"When=2015-01-25T08:00:00Z", "<when>2015-01-25T08:00:00.000Z</when>"},
        {"When=2015-01-25T08%3A00%3A00.250%2B01%3A00", "<when>2015-01-25T07:00:00.250Z</when>"},
        {"Epoch=1422172800", "<epoch>1422172800</epoch>"},
        {"Http=Sun%2C+25+Jan+2015+08%3A00%3A00+GMT",
         "<http>Sun, 25 Jan 2015 08:00:00 GMT</http>"},
        {"Data=Zm9v&Blobs.1=YQ%3D%3D", "<data>Zm9v</data><blobs><item>YQ==</item></blobs>"},
        {"Words.1=a&Words.2=b", "<words><member>a</member><member>b</member></words>"},
        {"Words.10=b&Words.2=a",
         "<words><member>a</member><member>b</member></words>"}, /* gaps are closed */
        {"Words.1=&Words.3=c",
         "<words><member/><member>c</member></words>"}, /* empty is not absent */
        {"Numbers.1=1&Numbers.2=0", "<numbers><item>1</item><item>0</item></numbers>"},
        {"Thing.1.Other=x&Thing.1.Must=m&Thing.2.Must=n",
         "<thing><item><other>x</other><must>m</must></item><item><must>n</must></item></"
         "thing>"},
        {"Single.Must=m&Single.Deep.List.1=z",
         "<single><must>m</must><deep><list><member>z</member></list></deep></single>"},
        {"Nested.1.2=b&Nested.1.1=a&Nested.3.1=c",
         "<nested><item><item>a</item><item>b</item></item><item><item>c</item></item></"
         "nested>"},
        /* three characters, nine bytes */
        {"ClientToken=t&Shade=dark+blue&Text=%E6%97%A5%E6%9C%AC%E8%AA%9E",
         "<text>\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e</text><shade>dark "
         "blue</shade><clientToken>t</clientToken>"},
    };
    check(ec2, "ThingsRequest", rows, ARRAY_LEN(rows));
}

static void test_ec2_refused(void **state)
{
    static const struct row rows[] = {
        {"Nope=1", "UnknownParameter: The parameter Nope is not recognized"},
        {"foo=1", "UnknownParameter: The parameter foo is not recognized"},
        {"=1", "UnknownParameter: The parameter  is not recognized"},
        {"Foo.1=x", "UnknownParameter: The parameter Foo.1 is not recognized"},
        {"Foo.=x", "UnknownParameter: The parameter Foo. is not recognized"},
        {".Foo=x", "UnknownParameter: The parameter .Foo is not recognized"},
        {"Words=x", "UnknownParameter: The parameter Words is not recognized"},
        {"Words.a=x", "UnknownParameter: The parameter Words.a is not recognized"},
        {"Words.0=x", "UnknownParameter: The parameter Words.0 is not recognized"},
        {"Words.-1=x", "UnknownParameter: The parameter Words.-1 is not recognized"},
        {"Words.member.1=x",
         "UnknownParameter: The parameter Words.member.1 is not recognized"},
        {"Words..1=x", "UnknownParameter: The parameter Words..1 is not recognized"},
        {"Thing.1=x", "UnknownParameter: The parameter Thing.1 is not recognized"},
        {"Single=x", "UnknownParameter: The parameter Single is not recognized"},
        {"Words.66=x", "InvalidParameterValue: The parameter Words.66 is out of range: lists "
                       "have at most 1000 entries without large "
                       "gaps"},
        {"Words.1001=x", "InvalidParameterValue: The parameter Words.1001 is out of range: "
                         "lists have at most 1000 entries without "
                         "large gaps"},
        {"Words.99999999999999999999=x", "InvalidParameterValue: The parameter "
                                         "Words.99999999999999999999 is out of range: lists "
                                         "have at most 1000 entries without large gaps"},
        {"Number=x", "InvalidParameterValue: Value (x) for parameter Number is invalid. "
                     "Expected an integer."},
        {"Number=2147483648", "InvalidParameterValue: Value (2147483648) for parameter Number "
                              "is invalid. Expected an integer."},
        {"Number=1.0", "InvalidParameterValue: Value (1.0) for parameter Number is invalid. "
                       "Expected an integer."},
        {"Number=", "InvalidParameterValue: Value () for parameter Number is invalid. Expected "
                    "an integer."},
        {"Flag=yes", "InvalidParameterValue: Value (yes) for parameter Flag is invalid. "
                     "Expected true or false."},
        {"Rough=0x10", "InvalidParameterValue: Value (0x10) for parameter Rough is invalid. "
                       "Expected a number."},
        {"Rough=1e999", "InvalidParameterValue: Value (1e999) for parameter Rough is invalid. "
                        "Expected a number."},
        {"When=yesterday", "InvalidParameterValue: Value (yesterday) for parameter When is "
                           "invalid. Expected a time such as 2026-11-30T14:49:10Z."},
        {"Data=%2A",
         "InvalidParameterValue: Value (*) for parameter Data is invalid. Expected base64."},
        {"Foo=%ff",
         "InvalidParameterValue: The parameter Foo contains characters that are not allowed"},
        {"Foo=a%00b",
         "InvalidParameterValue: The parameter Foo contains characters that are not allowed"},
        {"Foo=%f", "MalformedQueryString: The query string contains a syntax error"},
        {"Fo%=1", "MalformedQueryString: The query string contains a syntax error"},
        {"Single.Other=x",
         "MissingParameter: The request must contain the parameter Single.Must"},
        {"Thing.1.Must=x&Thing.2.B=1",
         "MissingParameter: The request must contain the parameter Thing.2.Must"},
        {"Shade=pink", "InvalidParameterValue: Value (pink) for parameter shade is invalid. It "
                       "is not one of the values that this "
                       "parameter can have."},
        {"Shades.1=red&Shades.2=Green", "InvalidParameterValue: Value (Green) for parameter "
                                        "shades.2 is invalid. It is not one of the "
                                        "values that this parameter can have."},
        {"Limited=11", "InvalidParameterValue: Value (11) for parameter limited is invalid. "
                       "Expecting a value less than or equal to 10."},
        {"Limited=0", "InvalidParameterValue: Value (0) for parameter limited is invalid. "
                      "Expecting a value greater than or equal to 1."},
        {"Text=a", "InvalidParameterValue: Value (a) for parameter text is invalid. Expecting "
                   "a length greater than or equal to 2."},
        {"Ratio=2.5", "InvalidParameterValue: Value (2.5) for parameter ratio is invalid. "
                      "Expecting a value less than or equal to 2."},
        {"Words.1=a&Words.2=b&Words.3=c&Words.4=d",
         "InvalidParameterValue: Value (4 entries) for parameter words is invalid. Expecting a "
         "length "
         "less than or equal to 3."},
    };
    check(ec2, "ThingsRequest", rows, ARRAY_LEN(rows));
}

static void test_query_input(void **state)
{
    static const struct row rows[] = {
        {"Must=1", "<Must>1</Must>"},
        {"Must=1&Words.member.1=a&Words.member.2=b",
         "<Words><member>a</member><member>b</member></Words><Must>1</Must>"},
        {"Must=1&Words=", "<Words/><Must>1</Must>"}, /* an empty list */
        {"Must=1&Flat.1=a&Flat.2=b", "<Flat>a</Flat><Flat>b</Flat><Must>1</Must>"},
        {"Must=1&Entry.1=a&Entry.2=b", "<Entry>a</Entry><Entry>b</Entry><Must>1</Must>"},
        {"Must=1&Named.item.1=a", "<Named><item>a</item></Named><Must>1</Must>"},
        {"Must=1&Nested.member.1.member.1=a&Nested.member.2.member.1=b",
         "<Nested><member><member>a</member></member><member><member>b</member></member></"
         "Nested><Must>1</Must>"},
        {"Must=1&Things.member.1.A=x&Things.member.1.B=3",
         "<Things><member><A>x</A><B>3</B></member></Things><Must>1</Must>"},
        {"Must=1&Map.entry.1.key=k&Map.entry.1.value.B=1&Map.entry.2.key=l&Map.entry.2.value.B="
         "2",
         "<Map><entry><key>k</key><value><B>1</B></value></entry><entry><key>l</"
         "key><value><B>2</B></value></entry></Map>"
         "<Must>1</Must>"},
        {"Must=1&Plain.entry.1.key=a&Plain.entry.1.value=b",
         "<Plain><entry><key>a</key><value>b</value></entry></Plain><Must>1</Must>"},
        {"Must=1&FlatMap.1.K=a&FlatMap.1.V=b",
         "<FlatMap><K>a</K><V>b</V></FlatMap><Must>1</Must>"},
        {"Must=1&Other=x", "<Other>x</Other><Must>1</Must>"},
        {"Must=1&Thing.B=1", "<Must>1</Must><Thing><B>1</B></Thing>"},
        {"Must=1&When=2015-01-25T08:00:00Z&Epoch=1.5",
         "<When>2015-01-25T08:00:00Z</When><Epoch>1</Epoch><Must>1</Must>"},
    };
    check(query, "DoRequest", rows, ARRAY_LEN(rows));
}

static void test_query_refused(void **state)
{
    static const struct row rows[] = {
        {"Foo=x", "ValidationError: 1 validation error detected: Value null at 'must' failed "
                  "to satisfy constraint: Member must not be "
                  "null"},
        {"Name=x&Count=11", "ValidationError: 3 validation errors detected: Value 'x' at "
                            "'name' failed to satisfy constraint: Member must "
                            "have length greater than or equal to 2; Value '11' at 'count' "
                            "failed to satisfy constraint: Member must have "
                            "value less than or equal to 10; Value null at 'must' failed to "
                            "satisfy constraint: Member must not be null"},
        {"Must=1&Secret=hunter2", "ValidationError: 1 validation error detected: Value at "
                                  "'secret' failed to satisfy constraint: Member "
                                  "must have length greater than or equal to 8"},
        {"Must=1&Shade=pink", "ValidationError: 1 validation error detected: Value 'pink' at "
                              "'shade' failed to satisfy constraint: Member "
                              "must satisfy enum value set: [green, red]"},
        {"Must=1&Things.member.1.A=x", "ValidationError: 1 validation error detected: Value "
                                       "null at 'things.1.b' failed to satisfy "
                                       "constraint: Member must not be null"},
        {"Must=1&Name=a+b", "ValidationError: 1 validation error detected: Value 'a b' at "
                            "'name' failed to satisfy constraint: Member "
                            "must satisfy regular expression pattern: [\\w+=,.@-]+"},
        {"Must=1&Words.1=a", "UnknownParameter: The parameter Words.1 is not recognized"},
        {"Must=1&Count=x",
         "ValidationError: Value 'x' at 'Count' is not valid: expected an integer"},
        {"Must=1&Plain.entry.1.other=a",
         "UnknownParameter: The parameter Plain.entry.1.other is not recognized"},
        {"Must=1&Plain.1.key=a",
         "UnknownParameter: The parameter Plain.1.key is not recognized"},
    };
    check(query, "DoRequest", rows, ARRAY_LEN(rows));
}

static const char *encode(const struct aws_service *s, const char *op, const void *v)
{
    AUTO_BUF out;
    struct err err = ERR_INIT;
    buf_init(&out, 1u << 20);
    assert_int_equal(aws_encode(s, aws_op_find(s, str_c(op)), v, STR("id-1"), &out, &err), 0);
    return arena_cstr(
        arena, str_skip(buf_str(&out), strlen("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n")));
}

static void test_ec2_output(void **state)
{
    struct str words[] = {STR("a"), STR(""), STR("<c>")};
    struct ec2like_struct2 deep = {.list = {.is_set = true}};
    struct ec2like_struct thing = {.deep = &deep};
    struct ec2like_things_result out = {.foo = STR(""),
                                        .number = some_i64(-5),
                                        .flag = some_bool(false),
                                        .ratio = some_f64(0.1),
                                        .when = some_time(UINT64_C(1422172800123456789)),
                                        .data = STR("foo"),
                                        .words = {words, 3, true},
                                        .thing = &thing};
    assert_string_equal(
        encode(ec2, "DescribeThings", &out),
        "<DescribeThingsResponse "
        "xmlns=\"https://example.com/ec2/\"><requestId>id-1</requestId><foo/>"
        "<number>-5</number><flag>false</flag><ratio>0.1</"
        "ratio><when>2015-01-25T08:00:00.123Z</when><data>Zm9v</data>"
        "<wordSet><member>a</member><member/><member>&lt;c&gt;</member></wordSet>"
        "<thing><deep><list/></deep></thing><thingSet/><nestedSet/></DescribeThingsResponse>");
    assert_string_equal(
        encode(ec2, "Nothing", NULL),
        "<NothingResponse "
        "xmlns=\"https://example.com/ec2/\"><requestId>id-1</requestId><return>true</return>"
        "</NothingResponse>");
}

static void test_query_output(void **state)
{
    struct str words[] = {STR("a"), STR("b")};
    struct querylike_plain_entry entry = {STR("k"), STR("v")};
    struct querylike_flat_map_entry flat = {STR("x"), STR("y")};
    struct querylike_map_entry map = {STR("m"), {.b = some_i64(7)}};
    struct querylike_do_result out = {.foo = STR("f"),
                                      .when = some_time(UINT64_C(1422172800000000000)),
                                      .words = {words, 0, true},
                                      .flat = {words, 2, true},
                                      .flat_named = {words, 1, true},
                                      .named = {words, 1, true},
                                      .map = {&map, 1, true},
                                      .plain = {&entry, 1, true},
                                      .flat_map = {&flat, 1, true},
                                      .renamed = STR("r")};
    assert_string_equal(
        encode(query, "Do", &out),
        "<DoResponse "
        "xmlns=\"https://example.com/query/\"><DoResult><Foo>f</"
        "Foo><When>2015-01-25T08:00:00Z</When><Words/>"
        "<Flat>a</Flat><Flat>b</Flat><Entry>a</Entry><Named><item>a</item></Named>"
        "<Map><entry><key>m</key><value><B>7</B></value></entry></Map>"
        "<Plain><entry><key>k</key><value>v</value></entry></Plain><FlatMap><K>x</K><V>y</V></"
        "FlatMap><Other>r</Other>"
        "</DoResult><ResponseMetadata><RequestId>id-1</RequestId></ResponseMetadata></"
        "DoResponse>");
    assert_string_equal(
        encode(query, "Nothing", NULL),
        "<NothingResponse "
        "xmlns=\"https://example.com/query/\"><ResponseMetadata><RequestId>id-1</RequestId>"
        "</ResponseMetadata></NothingResponse>");
}

/* What a client may fill is bounded, whatever it names. */
static void test_limits(void **state)
{
    AUTO_BUF form;
    void *v;
    buf_init(&form, 4u << 20);
    for (int i = 1; i <= 1000; i++) {
        buf_fmt(&form, "&Numbers.%d=%d", i, i);
    }
    assert_string_equal(decode(ec2, "ThingsRequest", buf_cstr(&form), &v), "");
    const struct ec2like_things_request *in = v;
    assert_int_equal(in->numbers.n, 1000);
    for (size_t i = 0; i < 1000; i++) {
        assert_int_equal(in->numbers.v[i].v, i + 1);
    }
    buf_clear(&form);
    for (unsigned i = 0; i <= AWS_MAX_PARAMS; i++) {
        buf_addc(&form, "&Foo=x");
    }
    assert_string_equal(decode(ec2, "ThingsRequest", buf_cstr(&form), &v),
                        "RequestTooLarge: The request is larger than this service accepts.");
    buf_clear(&form);
    for (unsigned i = 0; i < 9000; i++) { /* lists in lists, each mostly gaps */
        buf_fmt(&form, "&Nested.%u.%u=x", i % 1000 + 1, i / 1000 * 64 + 64);
    }
    assert_string_equal(decode(ec2, "ThingsRequest", buf_cstr(&form), &v),
                        "RequestTooLarge: The request is larger than this service accepts.");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_ec2_input, reset),
        cmocka_unit_test_setup(test_ec2_refused, reset),
        cmocka_unit_test_setup(test_query_input, reset),
        cmocka_unit_test_setup(test_query_refused, reset),
        cmocka_unit_test_setup(test_ec2_output, reset),
        cmocka_unit_test_setup(test_query_output, reset),
        cmocka_unit_test_setup(test_limits, reset),
    };
    arena = arena_new(64u << 20);
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    arena_free(arena);
    return rc;
}
