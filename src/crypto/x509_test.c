#include "crypto/x509.h"

#include "base/file.h"
#include "base/time.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>

#include <cmocka.h>

#define DAY_NS (UINT64_C(86400) * NS_PER_S)

static struct x509_pair ca, other_ca;

static int setup(void **state)
{
    assert_int_equal(x509_make_ca(STR("cluster authority"), 3650, &ca, NULL), 0);
    assert_int_equal(x509_make_ca(STR("cluster authority"), 3650, &other_ca, NULL),
                     0); /* same name, other key */
    return 0;
}

static int teardown(void **state)
{
    x509_pair_done(&ca);
    x509_pair_done(&other_ca);
    return 0;
}

static void test_issue_and_check(void **state)
{
    struct str names[] = {STR("box.example"), STR("*.s3.box.example"), STR("localhost"),
                          STR("10.1.2.3"),    STR("fe80::1"),          STR("::1")};
    struct x509_pair p = {0};
    struct err err = ERR_INIT;
    assert_int_equal(x509_issue(&ca, names, ARRAY_LEN(names), 365, &p, &err), 0);
    struct str cert = str_c(p.cert_pem), key = secret_str(&p.key_pem),
               root = str_c(ca.cert_pem);
    uint64_t now = time_wall_ns();
    assert_int_equal(x509_check(cert, key, root, names, ARRAY_LEN(names), now, &err), 0);
    assert_int_equal(x509_check(cert, STR_NONE, root, NULL, 0, now, &err), 0);

    /* Each reason to renew. */
    static const struct {
        const char *name;
        const char *why;
    } missing[] = {{"other.example", "does not cover"},
                   {"10.1.2.4", "does not cover"},
                   {"a.b.s3.box.example", "does not cover"},
                   {"fe80::2", "does not cover"}};
    for (size_t i = 0; i < ARRAY_LEN(missing); i++) {
        struct str n = str_c(missing[i].name);
        err_clear(&err);
        assert_int_equal(x509_check(cert, key, root, &n, 1, now, &err), -EINVAL);
        assert_non_null(strstr(err.msg, missing[i].why));
        assert_string_equal(err.name, "BadCertificate");
    }
    struct str bucket = STR("mine.s3.box.example");
    assert_int_equal(x509_check(cert, key, root, &bucket, 1, now, NULL), 0);
    err_clear(&err);
    assert_int_equal(x509_check(cert, key, root, names, 1, now + 366 * DAY_NS, &err), -EINVAL);
    assert_non_null(strstr(err.msg, "expired"));
    assert_int_equal(x509_check(cert, key, root, names, 1, now - DAY_NS, NULL), -EINVAL);
    assert_int_equal(x509_check(cert, key, str_c(other_ca.cert_pem), names, 1, now, NULL),
                     -EINVAL);
    assert_int_equal(x509_check(cert, secret_str(&ca.key_pem), root, names, 1, now, NULL),
                     -EINVAL);
    assert_int_equal(x509_check(STR("junk"), key, root, names, 1, now, NULL), -EINVAL);
    assert_int_equal(x509_check(cert, STR("junk"), root, names, 1, now, NULL), -EINVAL);
    assert_int_equal(x509_check(STR_NONE, STR_NONE, STR_NONE, NULL, 0, now, NULL), -EINVAL);
    x509_pair_done(&p);
}

static void test_info(void **state)
{
    struct x509_info info;
    uint64_t now = time_wall_ns();
    assert_int_equal(x509_read(str_c(ca.cert_pem), &info, NULL), 0);
    assert_true(info.is_ca);
    assert_true(info.not_before_ns <= now && info.not_after_ns > now + 3649 * DAY_NS);
    assert_int_equal(strlen(info.fingerprint), 95);
    struct str name = STR("h");
    struct x509_pair p = {0};
    /* It does not outlive the authority that signed it. */
    struct x509_pair brief = {0};
    assert_int_equal(x509_make_ca(STR("brief"), 2, &brief, NULL), 0);
    assert_int_equal(x509_issue(&brief, &name, 1, 100, &p, NULL), 0);
    struct x509_info leaf, root;
    assert_int_equal(x509_read(str_c(p.cert_pem), &leaf, NULL), 0);
    assert_int_equal(x509_read(str_c(brief.cert_pem), &root, NULL), 0);
    assert_false(leaf.is_ca);
    assert_true(leaf.not_after_ns == root.not_after_ns);
    /* A server's certificate is no authority. */
    struct x509_pair below = {0};
    assert_int_equal(x509_issue(&p, &name, 1, 1, &below, NULL), 0);
    assert_int_equal(
        x509_check(str_c(below.cert_pem), STR_NONE, str_c(p.cert_pem), NULL, 0, now, NULL),
        -EINVAL);
    x509_pair_done(&below);
    x509_pair_done(&brief);
    x509_pair_done(&p);
    struct err err = ERR_INIT;
    assert_int_equal(
        x509_read(STR("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), &info,
                  &err),
        -EINVAL);
    assert_string_equal(err.name, "BadCertificate");
}

static void test_bad_names(void **state)
{
    static const char *const bad[] = {
        "",        "a b",         "-a",    "a-",          "a..b",      ".a",     "a.",
        "*",       "*.",          "a.*.b", "256.1.1.1/8", "256.1.1.1", "10.0.0", "fe80::1%eth0",
        "a,DNS:b", "caf\xc3\xa9", "[::1]"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct str names[] = {STR("good"), str_c(bad[i])};
        struct x509_pair p = {0};
        struct err err = ERR_INIT;
        if (x509_issue(&ca, names, 2, 10, &p, &err) != -EINVAL ||
            strcmp(err.name, "BadName") != 0) {
            fail_msg("\"%s\" was accepted", bad[i]);
        }
        assert_null(p.cert_pem);
    }
    struct x509_pair p = {0};
    struct str name = STR("h");
    assert_int_equal(x509_issue(&ca, &name, 0, 10, &p, NULL), -EINVAL);
    assert_int_equal(x509_issue(&ca, &name, 1, 0, &p, NULL), -EINVAL);
    assert_int_equal(x509_issue(&ca, &name, 1, 40000, &p, NULL), -EINVAL);
    /* The key of another authority. */
    struct x509_pair mixed = {.cert_pem = ca.cert_pem, .key_pem = other_ca.key_pem};
    assert_int_equal(x509_issue(&mixed, &name, 1, 10, &p, NULL), -EINVAL);
    /* A common name longer than X.520 allows is cut; the alternative name is whole. */
    char long_name[130];
    memset(long_name, 'a', sizeof(long_name));
    long_name[60] = long_name[121] = '.';
    name = str_n(long_name, sizeof(long_name));
    assert_int_equal(x509_issue(&ca, &name, 1, 10, &p, NULL), 0);
    assert_int_equal(x509_check(str_c(p.cert_pem), STR_NONE, str_c(ca.cert_pem), &name, 1,
                                time_wall_ns(), NULL),
                     0);
    x509_pair_done(&p);
}

static void test_files(void **state)
{
    char dir[] = "/tmp/x509-test-XXXXXX", cert[64], key[64];
    assert_non_null(mkdtemp(dir));
    snprintf(cert, sizeof(cert), "%s/cert", dir);
    snprintf(key, sizeof(key), "%s/key", dir);
    assert_int_equal(x509_save(&ca, cert, key, NULL), 0);
    struct stat st;
    assert_int_equal(stat(key, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    struct x509_pair p = {0};
    assert_int_equal(x509_load(cert, key, &p, NULL), 0);
    assert_string_equal(p.cert_pem, ca.cert_pem);
    assert_true(secret_eq(&p.key_pem, secret_str(&ca.key_pem)));
    x509_pair_done(&p);
    /* A crash between the two writes leaves a pair that does not fit: seen, not used. */
    assert_int_equal(file_write_atomic(key, secret_str(&other_ca.key_pem), 0600, NULL), 0);
    struct err err = ERR_INIT;
    assert_int_equal(x509_load(cert, key, &p, &err), -EINVAL);
    assert_string_equal(err.name, "BadCertificate");
    unlink(key);
    assert_int_equal(x509_load(cert, key, &p, NULL), -ENOENT);
    assert_null(p.cert_pem);
    unlink(cert);
    rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_issue_and_check),
        cmocka_unit_test(test_info),
        cmocka_unit_test(test_bad_names),
        cmocka_unit_test(test_files),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
