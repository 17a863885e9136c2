#include "base/file.h"
#include "base/test.h"
#include "keys/keys.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

static char dir[64];
static char path[128];

static int setup(void **state)
{
    snprintf(dir, sizeof(dir), "/tmp/keys_test.XXXXXX");
    if (!mkdtemp(dir)) {
        return -1;
    }
    snprintf(path, sizeof(path), "%s/root.key", dir);
    return 0;
}

static int teardown(void **state)
{
    unlink(path);
    return rmdir(dir); /* fails when a temporary file was left behind */
}

static void test_wrap_and_unwrap(void **state)
{
    assert_int_equal(keys_create_file(path, (uid_t)-1, (gid_t)-1, NULL), 0);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);

    AUTO(keys_closep) struct keys *k = NULL;
    assert_int_equal(keys_open_file(path, &k, NULL), 0);
    assert_false(keys_is_locked(k));
    AUTO_BUF w;
    AUTO_BUF w2;
    buf_init(&w, 1000);
    buf_init(&w2, 1000);
    struct str plain = STR("wJalrXUtnFEMI/K7MDENG");
    assert_int_equal(keys_wrap(k, STR("access-key/A"), plain, &w, NULL), 0);
    assert_int_equal(keys_wrap(k, STR("access-key/A"), plain, &w2, NULL), 0);
    assert_false(str_eq(buf_str(&w), buf_str(&w2))); /* a nonce of its own each time */
    assert_true(str_find_str(buf_str(&w), plain) < 0);

    AUTO_SECRET back = SECRET_INIT;
    assert_int_equal(keys_unwrap(k, STR("access-key/A"), buf_str(&w), &back, NULL), 0);
    assert_true(secret_eq(&back, plain));

    /* A secret cannot be moved to another owner by a copy of its text. */
    struct err err = ERR_INIT;
    assert_int_equal(keys_unwrap(k, STR("access-key/B"), buf_str(&w), &back, &err), -EBADMSG);
    assert_string_equal(err.name, "WrongKey");

    for (size_t i = 0; i < w.n; i++) { /* every changed character is noticed */
        AUTO_SECRET none = SECRET_INIT;
        char old = w.p[i];
        w.p[i] = old == 'A' ? 'B' : 'A';
        int r = keys_unwrap(k, STR("access-key/A"), buf_str(&w), &none, NULL);
        assert_true(r == -EBADMSG || r == -EINVAL);
        assert_false(secret_is_set(&none));
        w.p[i] = old;
    }
    static const char *const bad[] = {"", "spxw1.", "spxw1.00000000", "spxw2.00000000.AAAA",
                                      "x"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(keys_unwrap(k, STR("a"), str_c(bad[i]), &back, NULL), -EINVAL);
    }
}

static void test_lock_and_unlock(void **state)
{
    assert_int_equal(keys_create_file(path, (uid_t)-1, (gid_t)-1, NULL), 0);
    AUTO(keys_closep) struct keys *k = NULL;
    assert_int_equal(keys_open_file(path, &k, NULL), 0);
    AUTO_BUF w;
    buf_init(&w, 1000);
    assert_int_equal(keys_wrap(k, STR("p"), STR("x"), &w, NULL), 0);
    keys_lock(k);
    assert_true(keys_is_locked(k));
    AUTO_SECRET s = SECRET_INIT;
    struct err err = ERR_INIT;
    assert_int_equal(keys_unwrap(k, STR("p"), buf_str(&w), &s, &err), -EACCES);
    assert_string_equal(err.name, "Locked");
    assert_int_equal(keys_wrap(k, STR("p"), STR("x"), &w, NULL), -EACCES);
    assert_int_equal(keys_unlock(k, NULL), 0);
    assert_int_equal(keys_unwrap(k, STR("p"), buf_str(&w), &s, NULL), 0);
}

static int fetch_when_told(void *ctx, struct secret *ret, struct err *err)
{
    const bool *is_told = ctx;
    return *is_told ? secret_set(ret, STR("0123456789abcdef0123456789abcdef"))
                    : fail(err, -EACCES, "Locked", "say the word first");
}

static void test_a_provider_may_start_locked(void **state)
{
    static const struct keys_provider word = {.name = "word", .fetch = fetch_when_told};
    bool is_told = false;
    AUTO(keys_closep) struct keys *k = NULL;
    assert_int_equal(keys_open(&word, &is_told, &k, NULL), 0);
    assert_true(keys_is_locked(k));
    struct err err = ERR_INIT;
    assert_int_equal(keys_unlock(k, &err), -EACCES);
    is_told = true;
    assert_int_equal(keys_unlock(k, NULL), 0);
    assert_false(keys_is_locked(k));
}

static void test_a_file_that_comes_later(void **state)
{
    AUTO(keys_closep) struct keys *k = NULL;
    struct err e = ERR_INIT;
    assert_int_equal(keys_open_file_or_wait(path, &k, NULL), 0);
    assert_true(keys_is_locked(k));
    assert_int_equal(keys_unlock(k, &e), -EACCES);
    assert_string_equal(e.name, "Locked");
    assert_int_equal(keys_create_file(path, (uid_t)-1, (gid_t)-1, NULL), 0);
    assert_int_equal(keys_unlock(k, NULL), 0);
    assert_false(keys_is_locked(k));
}

static void test_a_root_key_is_never_replaced(void **state)
{
    assert_int_equal(keys_create_file(path, (uid_t)-1, (gid_t)-1, NULL), 0);
    AUTO_FREE char *before = NULL;
    AUTO_FREE char *after = NULL;
    size_t n = 0;
    assert_int_equal(file_read(path, 1000, &before, &n, NULL), 0);
    struct err err = ERR_INIT;
    assert_int_equal(keys_create_file(path, (uid_t)-1, (gid_t)-1, &err), -EEXIST);
    assert_string_equal(err.name, "RootKeyExists");
    assert_int_equal(file_read(path, 1000, &after, &n, NULL), 0);
    assert_string_equal(before, after);
}

static void test_another_root_key_opens_nothing(void **state)
{
    AUTO_BUF w;
    buf_init(&w, 1000);
    for (int i = 0; i < 2; i++) {
        unlink(path);
        assert_int_equal(keys_create_file(path, (uid_t)-1, (gid_t)-1, NULL), 0);
        AUTO(keys_closep) struct keys *k = NULL;
        assert_int_equal(keys_open_file(path, &k, NULL), 0);
        if (i == 0) {
            assert_int_equal(keys_wrap(k, STR("p"), STR("x"), &w, NULL), 0);
            continue;
        }
        AUTO_SECRET s = SECRET_INIT;
        struct err err = ERR_INIT;
        assert_int_equal(keys_unwrap(k, STR("p"), buf_str(&w), &s, &err), -EBADMSG);
        assert_non_null(strstr(err.msg, "root key"));
    }
}

static void test_bad_files(void **state)
{
    static const struct {
        const char *text;
        mode_t mode;
        int code;
    } cases[] = {
        {"spinifex-root-key-1 "
         "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\n",
         0640, -EPERM},
        {"spinifex-root-key-1 00112233445566778899aabbccddeeff00112233445566778899aabbccddee\n",
         0600, -EINVAL},
        {"spinifex-root-key-1 "
         "00112233445566778899aabbccddeeff00112233445566778899aabbccddeefg\n",
         0600, -EINVAL},
        {"spinifex-root-key-1 "
         "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\nmore",
         0600, -EINVAL},
        {"", 0600, -EINVAL},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        unlink(path);
        assert_int_equal(file_write_atomic(path, str_c(cases[i].text), cases[i].mode, NULL), 0);
        AUTO(keys_closep) struct keys *k = NULL;
        struct err err = ERR_INIT;
        assert_int_equal(keys_open_file(path, &k, &err), cases[i].code);
        assert_string_equal(err.name, "BadRootKey");
        assert_true(strstr(err.msg, "0011") == NULL);
    }
    unlink(path);
    AUTO(keys_closep) struct keys *k = NULL;
    assert_int_equal(keys_open_file(path, &k, NULL), -ENOENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_wrap_and_unwrap, setup, teardown),
        cmocka_unit_test_setup_teardown(test_lock_and_unlock, setup, teardown),
        cmocka_unit_test(test_a_provider_may_start_locked),
        cmocka_unit_test_setup_teardown(test_a_root_key_is_never_replaced, setup, teardown),
        cmocka_unit_test_setup_teardown(test_another_root_key_opens_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_file_that_comes_later, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bad_files, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
