#include "base/test.h"

#include "base/err.h"
#include "state/rights.h"

static void test_writes(void **state)
{
    (void)state;
    static const struct {
        const char *service, *key;
        bool may_put, may_delete;
    } cases[] = {
        {"admin", "anything", true, true},
        {"awsgw", "spec/instance/1/i-1", true, true},
        {"awsgw", "spec/", false, false},
        {"awsgw", "spec", false, false},
        {"awsgw", "specx/y", false, false},
        {"awsgw", "claim/token/x", true, true},
        {"awsgw", "iam/key/AKIA", true, true},
        {"awsgw", "config/x", true, true},
        {"awsgw", "status/volume/1/vol-1", false, true},
        {"awsgw", "node/n1/awsgw", true, true},
        {"awsgw", "node/n1/compute", false, false},
        {"awsgw", "node/n1/awsgw/x", false, false},
        {"awsgw", "node//awsgw", false, false},
        {"awsgw", "node/a/b/awsgw", false, false},
        {"compute", "status/instance/1/i-1", true, true},
        {"compute", "status/attachment/1/vol-1", true, true},
        {"compute", "status/volume/1/vol-1", false, false},
        {"compute", "node/n1/facts", true, true},
        {"compute", "node/n1/compute", true, true},
        {"compute", "spec/instance/1/i-1", false, false},
        {"compute", "iam/key/AKIA", false, false},
        {"viperblock", "status/volume/1/vol-1", true, true},
        {"viperblock", "status/image/1/ami-1", true, true},
        {"viperblock", "spec/image/1/ami-1", true, true},
        {"viperblock", "spec/snapshot/1/snap-1", true, true},
        {"viperblock", "spec/tags/1/ami-1", true, true},
        {"viperblock", "claim/imagename/1/x", true, true},
        {"viperblock", "claim/capacity/n1", false, false},
        {"viperblock", "spec/volume/1/vol-1", false, true},
        {"viperblock", "node/n1/viperblock", true, true},
        {"vpcd", "status/eni/1/eni-1", true, true},
        {"vpcd", "status/vpc/1/vpc-1", true, true},
        {"vpcd", "spec/eni/1/eni-1", false, false},
        {"vpcd", "node/n1/vpcd", true, true},
        {"predastore", "spec/x", false, false},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        int s = rights_service(str_c(cases[i].service));
        assert_true(s >= 0);
        if (rights_may_write(s, RIGHT_PUT, str_c(cases[i].key)) != cases[i].may_put ||
            rights_may_write(s, RIGHT_DELETE, str_c(cases[i].key)) != cases[i].may_delete) {
            fail_msg("%s %s", cases[i].service, cases[i].key);
        }
    }
}

static void test_reads(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        bool is_prefix, is_secret;
    } cases[] = {
        {"spec/instance/1/i-1", false, false},
        {"iam/key/AKIA", false, true},
        {"iam/key/", true, true},
        {"iam/key", false, false},
        {"iam/key", true, true},
        {"iam/", true, true},
        {"i", true, true},
        {"", true, true},
        {"iam/user/", true, false},
        {"secret/x", false, true},
        {"secret/", true, true},
        {"sec", true, true},
        {"iam/keyring/", true, false},
        {"status/", true, false},
    };
    for (size_t s = 0; s < rights_n_services(); s++) {
        const char *name = rights_name((int)s);
        bool is_reader = str_eqc(str_c(name), "admin") || str_eqc(str_c(name), "awsgw") ||
                         str_eqc(str_c(name), "predastore");
        for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
            bool want = !cases[i].is_secret || is_reader;
            if (rights_may_read((int)s, str_c(cases[i].key), cases[i].is_prefix) != want) {
                fail_msg("%s %s", name, cases[i].key);
            }
        }
    }
}

static void test_names(void **state)
{
    (void)state;
    static const struct {
        const char *service;
        uid_t uid, base;
        bool may;
    } cases[] = {
        {"admin", 0, 70000, true},          {"compute", 0, 70000, true},
        {"vpcd", 0, 70000, true},           {"awsgw", 0, 70000, false},
        {"awsgw", 70002, 70000, true},      {"awsgw", 70003, 70000, false},
        {"viperblock", 70003, 70000, true}, {"predastore", 70005, 70000, true},
        {"admin", 70002, 70000, false},     {"compute", 70100, 70000, false},
        {"awsgw", 1000, 0, true},           {"admin", 1000, 0, true},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        int s = rights_service(str_c(cases[i].service));
        assert_true(s >= 0);
        if (rights_may_be(s, cases[i].uid, cases[i].base) != cases[i].may) {
            fail_msg("%s %u", cases[i].service, cases[i].uid);
        }
    }
    assert_int_equal(rights_service(STR("")), -1);
    assert_int_equal(rights_service(STR("Admin")), -1);
    assert_int_equal(rights_service(STR("state")), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_writes),
        cmocka_unit_test(test_reads),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
