#include "blk/blk_base.h"

#include "base/test.h"
#include "blk/blk_cow.h"
#include "crypto/crc.h"
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)

static void blocks_that_are_set_are_there_for_readers(void **state)
{
    AUTO_FD fd = memfd_create("base", MFD_CLOEXEC);
    uint64_t size = 40 * MIB + BLK_PAGE;
    assert_int_equal(base_map_create(fd, size, false, NULL), 0);
    struct base_map *w = NULL, *r = NULL;
    assert_int_equal(base_map_open(fd, true, &w, NULL), 0);
    assert_int_equal(base_map_open(fd, false, &r, NULL), 0);
    assert_int_equal(base_map_size(r), size);
    assert_int_equal(base_map_n_absent(r), 81);
    assert_false(base_map_has(r, 80));
    assert_int_equal(base_map_set(w, 80, NULL), 0);
    assert_int_equal(base_map_set(w, 0, NULL), 0);
    assert_true(base_map_has(r, 80));
    assert_true(base_map_has(r, 0));
    assert_false(base_map_has(r, 1));
    assert_false(base_map_has(r, 81)); /* beyond the end */
    assert_int_equal(base_map_n_absent(r), 79);
    struct err err = ERR_INIT;
    assert_int_equal(base_map_set(w, 81, &err), -EINVAL);
    assert_int_equal(base_map_set(r, 1, NULL), -EINVAL); /* not the writer */
    base_map_close(w);
    base_map_close(r);
    base_map_close(NULL);
    assert_int_equal(base_map_open(fd, false, &r, NULL), 0);
    assert_int_equal(base_map_n_absent(r), 79);
    base_map_close(r);
}

static void a_complete_base_has_everything(void **state)
{
    AUTO_FD fd = memfd_create("base", MFD_CLOEXEC);
    assert_int_equal(base_map_create(fd, 3 * MIB, true, NULL), 0);
    struct base_map *m = NULL;
    assert_int_equal(base_map_open(fd, false, &m, NULL), 0);
    assert_int_equal(base_map_n_absent(m), 0);
    assert_true(base_map_has(m, 5));
    assert_false(base_map_has(m, 6));
    base_map_close(m);
}

/* Damage and the future are told apart: who reads "damaged" may throw away what is good. */
static void a_newer_version_is_refused_as_such(void **state)
{
    AUTO_FD fd = memfd_create("base", MFD_CLOEXEC);
    struct base_map *m = NULL;
    struct err err = ERR_INIT;
    uint8_t head[4096], after[4096];
    uint32_t version = 7, zero = 0;
    assert_int_equal(base_map_create(fd, 3 * MIB, true, NULL), 0);
    assert_int_equal(pread(fd, head, sizeof(head), 0), sizeof(head));
    memcpy(head + 8, &version, 4);
    assert_int_equal(pwrite(fd, head, sizeof(head), 0), sizeof(head));
    assert_int_equal(base_map_open(fd, true, &m, &err), -EINVAL);
    assert_string_equal(err.name, "BadBaseMap"); /* the checksum does not fit */
    memcpy(head + 12, &zero, 4);
    uint32_t crc = (uint32_t)crc_add(CRC_32C, 0, str_n((const char *)head, sizeof(head)));
    memcpy(head + 12, &crc, 4);
    assert_int_equal(pwrite(fd, head, sizeof(head), 0), sizeof(head));
    err_clear(&err);
    assert_int_equal(base_map_open(fd, true, &m, &err), -EINVAL);
    assert_string_equal(err.name, "NewerFormat");
    assert_non_null(strstr(err.msg, "version 7"));
    assert_int_equal(pread(fd, after, sizeof(after), 0), sizeof(after));
    assert_memory_equal(head, after, sizeof(after));
}

static void a_damaged_word_says_absent(void **state)
{
    AUTO_FD fd = memfd_create("base", MFD_CLOEXEC);
    assert_int_equal(base_map_create(fd, 8 * MIB, false, NULL), 0);
    struct base_map *m = NULL;
    assert_int_equal(base_map_open(fd, true, &m, NULL), 0);
    assert_int_equal(base_map_set(m, 3, NULL), 0);
    uint32_t three;
    assert_int_equal(pread(fd, &three, 4, 4096 + 12), 4);
    for (unsigned bit = 0; bit < 32; bit++) {
        uint32_t bad = three ^ (UINT32_C(1) << bit);
        assert_int_equal(pwrite(fd, &bad, 4, 4096 + 12), 4);
        assert_false(base_map_has(m, 3));
    }
    /* The word of one block at another's place, or all ones, is no sign either. */
    assert_int_equal(pwrite(fd, &three, 4, 4096 + 16), 4);
    assert_false(base_map_has(m, 4));
    uint32_t ones = UINT32_MAX;
    assert_int_equal(pwrite(fd, &ones, 4, 4096 + 20), 4);
    assert_false(base_map_has(m, 5));
    base_map_close(m);
}

static void a_damaged_head_is_refused(void **state)
{
    for (unsigned off = 0; off < 60; off++) {
        AUTO_FD fd = memfd_create("base", MFD_CLOEXEC);
        assert_int_equal(base_map_create(fd, 8 * MIB, false, NULL), 0);
        uint8_t c;
        assert_int_equal(pread(fd, &c, 1, off), 1);
        c ^= 4;
        assert_int_equal(pwrite(fd, &c, 1, off), 1);
        struct base_map *m = NULL;
        struct err err = ERR_INIT;
        assert_int_equal(base_map_open(fd, false, &m, &err), -EINVAL);
        assert_string_equal(err.name, "BadBaseMap");
    }
    AUTO_FD fd = memfd_create("base", MFD_CLOEXEC);
    struct base_map *m = NULL;
    assert_int_equal(base_map_open(fd, false, &m, NULL), -EINVAL); /* empty */
    assert_int_equal(base_map_create(fd, 800 * MIB, false, NULL), 0);
    assert_int_equal(ftruncate(fd, 4096), 0);
    assert_int_equal(base_map_open(fd, false, &m, NULL),
                     -EINVAL); /* cut off: no SIGBUS later */
    assert_int_equal(base_map_create(fd, 0, false, NULL), -EINVAL);
    assert_int_equal(base_map_create(fd, 513, false, NULL), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_that_are_set_are_there_for_readers),
        cmocka_unit_test(a_complete_base_has_everything),
        cmocka_unit_test(a_newer_version_is_refused_as_such),
        cmocka_unit_test(a_damaged_word_says_absent),
        cmocka_unit_test(a_damaged_head_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
