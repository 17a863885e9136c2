#include "ostore/drive_int.h"

#include "base/file.h"
#include "base/test.h"
#include "base/time.h"
#include "ostore/olog_world.h"
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* Opens the folders of a world in the order of 'places': "012"; '-' is one that is not there. */
static int open_as(struct world *w, const char *places)
{
    static char paths[DRIVES_MAX][256];
    const char *list[DRIVES_MAX];
    unsigned n = 0;
    for (; places[n]; n++) {
        if (places[n] == '-') {
            (void)snprintf(paths[n], sizeof(paths[n]), "%s/not-there", w->root);
        } else {
            world_path(w, (unsigned)(places[n] - '0'), "", paths[n]);
        }
        list[n] = paths[n];
    }
    const struct drives_opts o = {.fs = w->fs, .paths = list, .n = n};
    err_clear(&w->err);
    return drives_open(&o, &w->d, &w->err);
}

static void close_drives(struct world *w)
{
    drives_close(w->d);
    w->d = NULL;
}

static void expect(struct world *w, const char *places, int rc, const char *name)
{
    int got = open_as(w, places);
    if (got != rc || (rc < 0 && strcmp(w->err.name, name) != 0)) {
        fail_msg("%s: %d %s: %s", places, got, w->err.name ? w->err.name : "", w->err.msg);
    }
}

static void states(const struct world *w, const char *want)
{
    for (unsigned i = 0; want[i]; i++) {
        if ("ohmf"[drives_state(w->d, i)] != want[i]) {
            fail_msg("drive %u is '%c', not as in %s", i, "ohmf"[drives_state(w->d, i)], want);
        }
    }
}

static void empty(const struct world *w, unsigned drive)
{
    char path[256];
    world_path(w, drive, "", path);
    world_remove(path);
    assert_int_equal(mkdir(path, 0700), 0);
}

static void put(const struct world *w, unsigned drive, const char *name, const char *text)
{
    char path[256];
    world_path(w, drive, name, path);
    AUTO_FD fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
}

static void test_new_set(void **state)
{
    struct world *w = world_new(3, 2, false);
    expect(w, "01-", -EIO, "TooFewDrives"); /* a new set needs all */
    put(w, 2, "/somebodys", "file");
    expect(w, "012", -ENOTEMPTY, "BadDrive");
    char path[256];
    world_path(w, 2, "/somebodys", path);
    assert_int_equal(unlink(path), 0);
    world_path(w, 2, "/lost+found", path);
    assert_int_equal(mkdir(path, 0700), 0);
    expect(w, "012", 0, NULL);
    states(w, "ooo");
    assert_int_equal(drives_writable(w->d), 7);
    uint8_t set[16];
    memcpy(set, drives_set_id(w->d), sizeof(set));
    for (unsigned i = 0; i < 3; i++) {
        assert_true(drives_dir(w->d, i, DRIVE_LOG) >= 0);
        assert_true(drives_dir(w->d, i, DRIVE_INDEX) >= 0);
        int fd = drives_data_dir(w->d, i, 0xab);
        assert_true(fd >= 0);
        assert_int_equal(drives_data_dir(w->d, i, 0xab), fd);
        world_path(w, i, "/data/ab", path);
        assert_int_equal(access(path, F_OK), 0);
    }
    /* one process at a time */
    struct drives *first = w->d;
    expect(w, "012", -EBUSY, "DriveBusy");
    w->d = first;
    close_drives(w);
    expect(w, "012", 0, NULL);
    assert_memory_equal(drives_set_id(w->d), set, sizeof(set));
    close_drives(w);
    /* not as they were */
    expect(w, "021", -ENOTUNIQ, "ForeignDrive");
    expect(w, "01", -ENOTUNIQ, "ForeignDrive");
    expect(w, "---", -EIO, "TooFewDrives");
    world_free(w);
}

static void test_foreign(void **state)
{
    struct world *a = world_new(2, 2, false), *b = world_new(2, 2, false);
    char from[256], to[256];
    expect(a, "01", 0, NULL);
    expect(b, "01", 0, NULL);
    close_drives(a);
    close_drives(b);
    world_path(a, 1, "", to);
    world_path(b, 1, "", from);
    world_remove(to);
    assert_int_equal(rename(from, to), 0);
    expect(a, "01", -ENOTUNIQ, "ForeignDrive");
    world_free(a);
    world_free(b);
}

static void test_missing_and_back(void **state)
{
    struct world *w = world_new(3, 2, false);
    expect(w, "012", 0, NULL);
    close_drives(w);
    expect(w, "0-2", 0, NULL);
    states(w, "omo");
    assert_int_equal(drives_dir(w->d, 1, DRIVE_LOG), -1);
    close_drives(w);
    expect(w, "012", 0, NULL); /* what was written meanwhile is not on it */
    states(w, "oho");
    close_drives(w);
    expect(w, "012", 0, NULL);
    states(w, "oho");
    assert_int_equal(drives_healed(w->d, 0, &w->err), 0); /* nothing to do */
    assert_int_equal(drives_healed(w->d, 1, &w->err), 0);
    close_drives(w);
    expect(w, "012", 0, NULL);
    states(w, "ooo");
    world_free(w);
}

static void test_split(void **state)
{
    struct world *w = world_new(2, 2, false);
    expect(w, "01", 0, NULL);
    close_drives(w);
    expect(w, "0-", 0, NULL);
    close_drives(w);
    expect(w, "-1", 0, NULL); /* alone, it cannot know */
    close_drives(w);
    expect(w, "01", -ENOTUNIQ, "SplitSet");
    expect(w, "-1", 0, NULL);
    close_drives(w);
    expect(w, "0-", 0, NULL);
    close_drives(w);
    expect(w, "01", -ENOTUNIQ, "SplitSet");
    world_free(w);
}

static void test_bad_file(void **state)
{
    struct world *w = world_new(2, 2, false);
    expect(w, "01", 0, NULL);
    close_drives(w);
    char path[256], *text = NULL;
    size_t n = 0;
    world_path(w, 1, "/drive.json", path);
    assert_int_equal(file_read(path, 65536, &text, &n, NULL), 0);
    /* every byte counts */
    for (size_t i = 0; i < n; i++) {
        struct drive_table t;
        text[i] ^= 1;
        assert_true(drive_table_decode(str_n(text, n), &t, NULL) < 0);
        assert_true(drive_table_decode(str_n(text, i), &t, NULL) < 0);
        text[i] ^= 1;
    }
    put(w, 1, "/drive.json", "{}");
    expect(w, "01", 0, NULL);
    states(w, "of");
    close_drives(w);
    put(w, 1, "/drive.json", text); /* it is not trusted any more */
    expect(w, "01", 0, NULL);
    states(w, "of");
    close_drives(w);
    put(w, 0, "/drive.json", "{}");
    put(w, 1, "/drive.json", "{}");
    expect(w, "01", -EUCLEAN, "BadDrive");
    free(text);
    world_free(w);
}

static void test_fault_and_replace(void **state)
{
    struct world *w = world_new(3, 2, false);
    expect(w, "012", 0, NULL);
    assert_int_equal(drives_replace(w->d, 1, &w->err), -EBUSY);
    drives_fault(w->d, 1, -ENOSPC, "writing"); /* full is not broken */
    states(w, "ooo");
    assert_int_equal(drives_space(w->d), SPACE_FULL);
    drives_fault(w->d, 1, -EIO, "reading tea leaves");
    states(w, "ofo");
    struct drive_facts f;
    drives_facts(w->d, 1, &f);
    assert_non_null(strstr(f.why, "tea leaves"));
    uint8_t old[16];
    memcpy(old, f.id, sizeof(old));
    close_drives(w);
    expect(w, "012", 0, NULL); /* and stays so */
    states(w, "ofo");
    err_clear(&w->err);
    assert_int_equal(drives_replace(w->d, 1, &w->err), -ENOTEMPTY);
    char kept[256], path[256];
    world_path(w, 1, "", path);
    (void)snprintf(kept, sizeof(kept), "%.200s-old", path);
    assert_int_equal(rename(path, kept), 0);
    err_clear(&w->err);
    assert_int_equal(drives_replace(w->d, 1, &w->err), -ENOENT);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(drives_replace(w->d, 1, NULL), 0);
    states(w, "oho");
    drives_facts(w->d, 1, &f);
    assert_memory_not_equal(f.id, old, sizeof(old));
    assert_true(f.total > 0 && f.avail <= f.total);
    assert_true(drives_dir(w->d, 1, DRIVE_DATA) >= 0);
    close_drives(w);
    expect(w, "012", 0, NULL);
    states(w, "oho");
    assert_int_equal(drives_healed(w->d, 1, NULL), 0);
    close_drives(w);
    /* the old one in its place again */
    world_remove(path);
    assert_int_equal(rename(kept, path), 0);
    expect(w, "012", -ENOTUNIQ, "ForeignDrive");
    world_free(w);
}

static void test_replace_missing(void **state)
{
    struct world *w = world_new(2, 2, false);
    expect(w, "01", 0, NULL);
    close_drives(w);
    empty(w, 0);
    expect(w, "01", 0, NULL); /* an empty folder is not taken by itself */
    states(w, "mo");
    assert_int_equal(drives_healed(w->d, 0, NULL), -EBUSY);
    assert_int_equal(drives_replace(w->d, 0, NULL), 0);
    states(w, "ho");
    world_free(w);
}

static void test_times_and_space(void **state)
{
    struct world *w = world_new(1, 1, false);
    expect(w, "0", 0, NULL);
    assert_int_equal(drives_slow_ns(w->d, 0), 20 * NS_PER_MS);
    for (int i = 0; i < 100; i++) {
        drives_note_read(w->d, 0, 50 * NS_PER_MS);
    }
    assert_int_equal(drives_slow_ns(w->d, 0), 400 * NS_PER_MS);
    drives_note_read(w->d, 0, 100 * NS_PER_S);
    assert_int_equal(drives_slow_ns(w->d, 0), 2 * NS_PER_S);
    assert_int_equal(drives_space(w->d), SPACE_OK);
    drives_note_full(w->d, 0);
    assert_int_equal(drives_space(w->d), SPACE_FULL);
    usleep(1100000);
    assert_int_equal(drives_space(w->d), SPACE_OK); /* by itself */
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_new_set),          cmocka_unit_test(test_foreign),
        cmocka_unit_test(test_missing_and_back), cmocka_unit_test(test_split),
        cmocka_unit_test(test_bad_file),         cmocka_unit_test(test_fault_and_replace),
        cmocka_unit_test(test_replace_missing),  cmocka_unit_test(test_times_and_space),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
