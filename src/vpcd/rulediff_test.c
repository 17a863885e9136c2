#include "vpcd/rulediff.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define HEAD "table inet spx {\n}\ndelete table inet spx\ntable inet spx {\n"
#define BASE                                                                                   \
    " chain f {\n  type filter hook forward priority 0; policy accept;\n  iifname vmap @m\n  " \
    "drop\n }\n"

static const char one[] =
    HEAD " set s {\n  type ipv4_addr\n  elements = { 10.0.0.1, 10.0.0.2 }\n }\n chain a {\n  "
         "tcp dport 80 accept\n }\n"
         " map m {\n  type ifname : verdict\n  elements = { \"t1\" : jump a }\n }\n" BASE
         " chain v_1 {\n }\n}\n";

static char *diff(const char *a, const char *b)
{
    AUTO_BUF out;
    buf_init(&out, 65536);
    struct err err = ERR_INIT;
    if (rulediff(str_c(a), str_c(b), &out, &err)) {
        fail_msg("%s", err.msg);
    }
    char *p = buf_take(&out);
    assert_non_null(p);
    return p;
}

static void test_changes(void **state)
{
    static const struct {
        const char *name, *is, *want;
    } cases[] = {
        {"nothing", one, ""},
        {"a rule of one chain",
         HEAD " set s {\n  type ipv4_addr\n  elements = { 10.0.0.1, 10.0.0.2 }\n }\n chain a "
              "{\n  tcp dport 81 accept\n }\n"
              " map m {\n  type ifname : verdict\n  elements = { \"t1\" : jump a }\n }\n" BASE
              " chain v_2 {\n }\n}\n",
         "table inet spx {\n chain v_2 {\n }\n}\nflush chain inet spx a\ntable inet spx {\n "
         "chain a {\n  tcp dport 81 accept\n }\n}\n"
         "delete chain inet spx v_1\n"},
        {"elements",
         HEAD " set s {\n  type ipv4_addr\n  elements = { 10.0.0.2, 10.0.0.3 }\n }\n chain a "
              "{\n  tcp dport 80 accept\n }\n"
              " map m {\n  type ifname : verdict\n  elements = { \"t1\" : jump a }\n }\n" BASE
              " chain v_1 {\n }\n}\n",
         "delete element inet spx s { 10.0.0.1 }\nadd element inet spx s { 10.0.0.3 }\n"},
        {"the last element",
         HEAD " set s {\n  type ipv4_addr\n }\n chain a {\n  tcp dport 80 accept\n }\n"
              " map m {\n  type ifname : verdict\n  elements = { \"t1\" : jump a }\n }\n" BASE
              " chain v_1 {\n }\n}\n",
         "delete element inet spx s { 10.0.0.1, 10.0.0.2 }\n"},
        {"another chain for a tap",
         HEAD " set s {\n  type ipv4_addr\n  elements = { 10.0.0.1, 10.0.0.2 }\n }\n chain b "
              "{\n  accept\n }\n"
              " map m {\n  type ifname : verdict\n  elements = { \"t1\" : jump b }\n }\n" BASE
              " chain v_1 {\n }\n}\n",
         "table inet spx {\n chain b {\n }\n}\nflush chain inet spx a\ndelete element inet spx "
         "m { \"t1\" }\n"
         "add element inet spx m { \"t1\" : jump b }\ntable inet spx {\n chain b {\n  accept\n "
         "}\n}\ndelete chain inet spx a\n"},
        {"a set that goes",
         HEAD " chain a {\n  tcp dport 80 accept\n }\n"
              " map m {\n  type ifname : verdict\n  elements = { \"t1\" : jump a }\n }\n" BASE
              " chain v_1 {\n }\n}\n",
         "delete element inet spx s { 10.0.0.1, 10.0.0.2 }\ndelete set inet spx s\n"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO_FREE char *got = diff(one, cases[i].is);
        if (strcmp(got, cases[i].want) != 0) {
            fail_msg("%s:\n%s\nnot\n%s", cases[i].name, got, cases[i].want);
        }
        AUTO_FREE char *same = diff(cases[i].is, cases[i].is);
        assert_string_equal(same, "");
    }
}

static void test_what_it_cannot_do_is_refused(void **state)
{
    static const char *const bad[] = {
        "table inet spx {\n  a rule outside\n}\n",
        "table inet spx {\n chair x {\n }\n}\n",
        "table inet spx {\n chain x\n }\n}\n",
        "table inet spx {\n chain x {\n }\n chain x {\n }\n}\n",
        /* the same name with another hook */
        HEAD " chain f {\n  type filter hook input priority 0; policy accept;\n  drop\n }\n}\n",
        HEAD " set a {\n  type ipv4_addr\n }\n}\n",
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        AUTO_BUF out;
        buf_init(&out, 65536);
        assert_int_equal(rulediff(str_c(one), str_c(bad[i]), &out, NULL), -EINVAL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_changes),
        cmocka_unit_test(test_what_it_cannot_do_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
