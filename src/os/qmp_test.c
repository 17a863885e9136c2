#include "base/test.h"
#include "os/qmp.h"
#include <errno.h>
#include <stdio.h>

struct log {
    char text[512];
    size_t n;
    int answer;
};

static int note(void *ctx, const struct qmp_msg *m)
{
    static const char *const type[] = {"greeting", "return", "error", "event"};
    struct log *l = ctx;
    long long id = m->id == QMP_NO_ID ? -1 : (long long)m->id;
    int n = snprintf(l->text + l->n, sizeof(l->text) - l->n, "%s %lld %.*s|", type[m->type], id,
                     STR_ARG(m->name));
    l->n += (size_t)n;
    return l->answer;
}

static const struct {
    const char *name, *bytes, *want;
    int want_r;
} cases[] = {
    {"greeting", "{\"QMP\": {\"version\": {}, \"capabilities\": [\"oob\"]}}\r\n",
     "greeting -1 |", 0},
    {"return", "{\"return\": {}, \"id\": 7}\r\n", "return 7 |", 0},
    {"return of a list", "{\"return\": [1], \"id\": 0}\n", "return 0 |", 0},
    {"error", "{\"id\": 9, \"error\": {\"class\": \"GenericError\", \"desc\": \"no\"}}\n",
     "error 9 GenericError|", 0},
    {"error without id", "{\"error\": {\"class\": \"GenericError\", \"desc\": \"no\"}}\n",
     "error -1 GenericError|", 0},
    {"event",
     "{\"timestamp\": {\"seconds\": 1, \"microseconds\": 2}, \"event\": \"SHUTDOWN\", "
     "\"data\": {\"guest\": true}}\n",
     "event -1 SHUTDOWN|", 0},
    {"event without data",
     "{\"timestamp\": {\"seconds\": -1, \"microseconds\": -1}, \"event\": \"STOP\"}\n",
     "event -1 STOP|", 0},
    {"two in one piece", "{\"return\":{},\"id\":1}\n\n{\"event\":\"RESUME\"}\n",
     "return 1 |event -1 RESUME|", 0},
    {"an unfinished line waits", "{\"return\":{},\"id\":1}\n{\"ret", "return 1 |", 0},
    {"id of another type", "{\"return\":{},\"id\":\"x\"}\n", "return -1 |", 0},
    {"not JSON", "hello\n", "", -EPROTO},
    {"an array", "[1]\n", "", -EPROTO},
    {"an empty object", "{}\n", "", -EPROTO},
    {"event that is a number", "{\"event\": 4}\n", "", -EPROTO},
};

static void test_messages(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        for (size_t step = 1; step < 80; step += 13) {
            AUTO(qmp_freep) struct qmp *q = qmp_new(QMP_MAX_LINE);
            struct log l = {.n = 0};
            struct str all = str_c(cases[i].bytes);
            int r = 0;
            for (size_t off = 0; off < all.n && r == 0; off += step) {
                r = qmp_feed(q, str_n(all.p + off, MIN(step, all.n - off)), note, &l, NULL);
            }
            if (r != cases[i].want_r || strcmp(l.text, cases[i].want) != 0) {
                fail_msg("%s: %d \"%s\"", cases[i].name, r, l.text);
            }
        }
    }
}

static void test_limit_breaks_the_stream(void **state)
{
    AUTO(qmp_freep) struct qmp *q = qmp_new(32);
    struct log l = {.n = 0};
    struct err err = ERR_INIT;
    assert_int_equal(
        qmp_feed(q, STR("{\"return\": {}, \"id\": 1000000000000000}"), note, &l, &err),
        -EMSGSIZE);
    assert_string_equal(err.name, "BadQmp");
    assert_int_equal(qmp_feed(q, STR("{\"event\":\"A\"}\n"), note, &l, NULL), -EMSGSIZE);
    assert_int_equal(l.n, 0);
}

static void test_callback_stops_the_feed(void **state)
{
    AUTO(qmp_freep) struct qmp *q = qmp_new(QMP_MAX_LINE);
    struct log l = {.answer = -ECANCELED};
    assert_int_equal(qmp_feed(q, STR("{\"event\":\"A\"}\n{\"event\":\"B\"}\n"), note, &l, NULL),
                     -ECANCELED);
    assert_string_equal(l.text, "event -1 A|");
}

static void test_commands(void **state)
{
    AUTO_BUF b;
    buf_init(&b, 1024);
    qmp_command(&b, "cont", 3, STR_NONE);
    qmp_command(&b, "device_del", 4, STR("{\"id\":\"d1\"}"));
    assert_string_equal(
        buf_cstr(&b), "{\"execute\":\"cont\",\"id\":3}\n"
                      "{\"execute\":\"device_del\",\"id\":4,\"arguments\":{\"id\":\"d1\"}}\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_limit_breaks_the_stream),
        cmocka_unit_test(test_callback_stops_the_feed),
        cmocka_unit_test(test_commands),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
