/* Errors, log lines and files. */
#include "base/err.h"

#include "base/buf.h"
#include "base/file.h"
#include "base/log.h"
#include "base/rand.h"
#include "base/test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

LOG_MODULE("test");

static void the_first_error_wins(void **state)
{
    struct err e = ERR_INIT;
    assert_int_equal(fail(&e, -ENOENT, "NoSuchKey", "key %s", "a"), -ENOENT);
    assert_int_equal(fail(&e, -EIO, "Other", "later"), -EIO);
    assert_string_equal(e.name, "NoSuchKey");
    assert_string_equal(e.msg, "key a");
    assert_int_equal(err_context(&e, -1, "reading %d", 7), -ENOENT);
    assert_string_equal(e.msg, "reading 7: key a");
    assert_int_equal(fail(NULL, -EIO, "X", "no err"), -EIO);
    err_clear(&e);
    assert_int_equal(e.code, 0);
}

static char *captured_line(void)
{
    int p[2], old = dup(2);
    assert_int_equal(pipe(p), 0);
    assert_true(dup2(p[1], 2) >= 0);
    log_set_request(STR("req-1"));
    log_info("thing.done", KV_STR("plain", STR("a-b")), KV_STR("odd", STR("x y\"\n=")),
             KV_I64("n", -5));
    log_set_request(STR_NONE);
    log_debug("not.shown", KV_U64("n", 1));
    assert_true(dup2(old, 2) >= 0);
    close(old);
    close(p[1]);
    char *line = calloc(1, 512);
    assert_true(read(p[0], line, 511) > 0);
    close(p[0]);
    return line;
}

static void log_lines_cannot_be_forged_by_values(void **state)
{
    AUTO_FREE char *line = captured_line();
    assert_non_null(strstr(
        line, " info  spx test thing.done req=req-1 plain=a-b odd=\"x y\\\"\\x0a=\" n=-5\n"));
    assert_null(strstr(line, "not.shown"));
}

static void rate_limit_lets_ten_through(void **state)
{
    struct log_rl rl = {0};
    uint32_t dropped = 0;
    int n = 0;
    for (int i = 0; i < 100; i++) {
        n += log_rl_take(&rl, &dropped);
    }
    assert_int_equal(n, 10);
}

static void files_are_replaced_in_one_step(void **state)
{
    char dir[] = "/tmp/base-test-XXXXXX", path[64], deep[64];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/f", dir);
    snprintf(deep, sizeof(deep), "%s/a/b", dir);
    struct err e = ERR_INIT;
    assert_int_equal(file_write_atomic(path, STR("one"), 0600, &e), 0);
    assert_int_equal(file_write_atomic(path, STR("two"), 0600, &e), 0);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    AUTO_FREE char *p = NULL;
    size_t n = 0;
    assert_int_equal(file_read(path, 3, &p, &n, &e), 0);
    assert_string_equal(p, "two");
    AUTO_FREE char *q = NULL;
    assert_int_equal(file_read(path, 2, &q, &n, &e), -EFBIG);
    assert_null(q);
    err_clear(&e);
    assert_int_equal(file_mkdirs(deep, 0700, &e), 0);
    assert_int_equal(file_mkdirs(deep, 0700, &e), 0);
    assert_int_equal(file_write_atomic("/nonexistent/x", STR("y"), 0600, &e), -ENOENT);
    assert_non_null(strstr(e.msg, "/nonexistent/x"));
    unlink(path);
    rmdir(deep);
    snprintf(deep, sizeof(deep), "%s/a", dir);
    rmdir(deep);
    assert_int_equal(rmdir(dir), 0); /* no temporary file is left */
}

static void hex_ids_differ(void **state)
{
    char a[18], b[18];
    rand_hex(a, 17);
    rand_hex(b, 17);
    assert_int_equal(strlen(a), 17);
    assert_int_equal(strspn(a, "0123456789abcdef"), 17);
    assert_string_not_equal(a, b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_error_wins),
        cmocka_unit_test(log_lines_cannot_be_forged_by_values),
        cmocka_unit_test(rate_limit_lets_ten_through),
        cmocka_unit_test(files_are_replaced_in_one_step),
        cmocka_unit_test(hex_ids_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
