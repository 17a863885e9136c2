#include "base/buf.h"
#include "base/test.h"
#include "codec/xml.h"
#include <errno.h>

/* Events as text: "(name|ns@attr=value" and "text)". */
static int add_start(void *ctx, const struct xml_elem_in *el)
{
    struct buf *out = ctx;
    buf_addc(out, "(");
    buf_add(out, el->name);
    if (el->ns.n) {
        buf_addc(out, "|");
        buf_add(out, el->ns);
    }
    for (size_t i = 0; i < el->n_attrs; i++) {
        buf_addc(out, "@");
        buf_add(out, el->attrs[i].ns);
        buf_addc(out, ":");
        buf_add(out, el->attrs[i].name);
        buf_addc(out, "=");
        buf_add(out, el->attrs[i].value);
    }
    return str_eqc(el->name, "stop") ? fail(NULL, -ECANCELED, "Stopped", "here") : 0;
}

static int add_end(void *ctx, struct str name, struct str text)
{
    struct buf *out = ctx;
    buf_add(out, text);
    buf_addc(out, ")");
    return str_eqc(name, "halt") ? -ECANCELED : 0;
}

static const struct xml_events events = {add_start, add_end};

static int parse(struct str text, const struct xml_limits *lim, struct buf *out,
                 struct err *err)
{
    return xml_parse(text, lim, &events, out, err);
}

static void test_accepts_and_refuses(void **state)
{
    static const struct {
        const char *name;
        const char *in;
        const char *want; /* NULL = refused */
    } cases[] = {
        {"one", "<a/>", "(a)"},
        {"declaration", "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<a>x</a>", "(ax)"},
        {"utf-8 in small letters", "<?xml version=\"1.0\" encoding=\"utf-8\"?><a/>", "(a)"},
        {"byte order mark", "\xef\xbb\xbf<a>x</a>", "(ax)"},
        {"white space between", "<a>\n  <b>1</b>\n  <c> 2 </c>\n</a>", "(a(b1)(c 2 ))"},
        {"white space alone is text of a leaf", "<a><b>  </b></a>", "(a(b  ))"},
        {"the five entities", "<a>&lt;&gt;&amp;&quot;&apos;</a>", "(a<>&\"')"},
        {"references", "<a>&#65;&#x20AC;&#13;</a>", "(aA\xe2\x82\xac\r)"},
        {"line ends become newlines", "<a>1\r\n2\r3</a>", "(a1\n2\n3)"},
        {"cdata", "<a><![CDATA[<b>&amp;]]></a>", "(a<b>&amp;)"},
        {"comments and instructions", "<a>x<!-- y --><?z w?>v</a>", "(axv)"},
        {"default namespace", "<a xmlns=\"u:1\"><b/></a>", "(a|u:1(b|u:1))"},
        {"prefixes", "<p:a xmlns:p=\"u:1\"><b/><p:c/></p:a>", "(a|u:1(b)(c|u:1))"},
        {"attributes", "<a x=\"1\" xmlns:i=\"u:2\" i:t=\"C&amp;\"/>", "(a@:x=1@u:2:t=C&)"},
        {"text beside elements", "<a>x<b/></a>", NULL},
        {"text after elements", "<a><b/>x</a>", NULL},
        {"text between elements", "<a><b/>x<c/></a>", NULL},
        {"unbound prefix", "<p:a/>", NULL},
        {"doctype", "<!DOCTYPE a><a/>", NULL},
        {"entities", "<!DOCTYPE a [<!ENTITY e \"x\">]><a>&e;</a>", NULL},
        {"external entity",
         "<!DOCTYPE a [<!ENTITY e SYSTEM \"file:///etc/passwd\">]><a>&e;</a>", NULL},
        {"unknown entity", "<a>&nbsp;</a>", NULL},
        {"latin-1 declared", "<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?><a/>", NULL},
        {"latin-1 bytes", "<a>\xe9</a>", NULL},
        {"reference to NUL", "<a>&#0;</a>", NULL},
        {"control byte", "<a>\x01</a>", NULL},
        {"mismatched", "<a></b>", NULL},
        {"not closed", "<a>", NULL},
        {"two roots", "<a/><b/>", NULL},
        {"nothing", "", NULL},
        {"white space only", "  ", NULL},
        {"no XML", "hello", NULL},
        {"attribute twice", "<a x=\"1\" x=\"2\"/>", NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO_BUF out;
        struct err err = ERR_INIT;
        buf_init(&out, 4096);
        int rc = parse(str_c(cases[i].in), &(struct xml_limits){0}, &out, &err);
        if ((rc == 0) != (cases[i].want != NULL) ||
            (rc == 0 && strcmp(buf_cstr(&out), cases[i].want) != 0)) {
            fail_msg("%s: %d %s %s", cases[i].name, rc, buf_cstr(&out), err.msg);
        }
        assert_true(rc == 0 || (rc == -EINVAL && strcmp(err.name, "BadXml") == 0));
    }
}

static void test_limits(void **state)
{
    static const struct {
        const char *in;
        struct xml_limits lim;
        bool is_good;
    } cases[] = {
        {"<a><b><c/></b></a>", {.max_depth = 3}, true},
        {"<a><b><c/></b></a>", {.max_depth = 2}, false},
        {"<a><b/><c/></a>", {.max_elements = 3}, true},
        {"<a><b/><c/></a>", {.max_elements = 2}, false},
        {"<a>1234</a>", {.max_text = 4}, true},
        {"<a>12345</a>", {.max_text = 4}, false},
        {"<a>1</a>", {.max_size = 8}, true},
        {"<a>12</a>", {.max_size = 8}, false},
        {"<a b1='' b2='' b3='' b4='' b5='' b6='' b7='' b8=''/>", {0}, true},
        {"<a b1='' b2='' b3='' b4='' b5='' b6='' b7='' b8='' b9=''/>", {0}, false},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO_BUF out;
        struct err err = ERR_INIT;
        buf_init(&out, 4096);
        int rc = parse(str_c(cases[i].in), &cases[i].lim, &out, &err);
        assert_int_equal(rc, cases[i].is_good ? 0 : -EFBIG);
        assert_true(rc == 0 || strcmp(err.name, "XmlTooLarge") == 0);
    }
    /* A document of opening tags only ends at the limit of depth, not at the stack's. */
    AUTO_BUF deep;
    AUTO_BUF out;
    buf_init(&deep, 1u << 20);
    buf_init(&out, 4096);
    for (size_t i = 0; i < 200000; i++) {
        buf_addc(&deep, "<a>");
    }
    assert_int_equal(parse(buf_str(&deep), &(struct xml_limits){0}, &out, NULL), -EFBIG);
}

static void test_call_backs_end_the_reading(void **state)
{
    static const char *const texts[] = {"<a><stop/><b/></a>", "<a><halt/><b/></a>"};
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        AUTO_BUF out;
        struct err err = ERR_INIT;
        buf_init(&out, 4096);
        assert_int_equal(parse(str_c(texts[i]), &(struct xml_limits){0}, &out, &err),
                         -ECANCELED);
        assert_int_equal(err.code, 0); /* the call-back's to say */
        assert_null(strstr(buf_cstr(&out), "(b"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accepts_and_refuses),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_call_backs_end_the_reading),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
