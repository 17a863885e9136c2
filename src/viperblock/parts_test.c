#include "base/test.h"

#include "testkit/tmpdir.h"
#include "viperblock/copy.h"
#include "viperblock/folder.h"
#include "viperblock/imgfmt.h"
#include "viperblock/sandbox.h"
#include "viperblock/stream.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

static void sniffing(void **state)
{
    char iso[32774] = {0}, boot[512] = {0}, tar[512] = {0};
    memcpy(iso + 32769, "CD001", 5);
    memcpy(boot + 510, "\x55\xaa", 2);
    memcpy(tar + 257, "ustar", 5);
    const struct {
        struct str head;
        enum img_format want;
    } cases[] = {
        {STR("QFI\xfb"), IMG_QCOW2},
        {STR("KDMV"), IMG_VMDK},
        {STR("vhdxfile"), IMG_VHDX},
        {STR("conectix"), IMG_VPC},
        {STR("\x1f\x8b\x08"), IMG_GZ},
        {STR("\x28\xb5\x2f\xfd"), IMG_ZST},
        {STR("\xfd"
             "7zXZ\0"),
         IMG_XZ},
        {str_n(iso, sizeof(iso)), IMG_RAW},
        {str_n(boot, sizeof(boot)), IMG_RAW},
        {str_n(tar, sizeof(tar)), IMG_TAR},
        {STR("QFI"), IMG_UNKNOWN},
        {STR(""), IMG_UNKNOWN},
        {str_n(boot, 511), IMG_UNKNOWN},
        {STR("BZh9"), IMG_UNKNOWN},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        assert_int_equal(img_sniff(cases[i].head), cases[i].want);
    }
    assert_string_equal(img_guess(STR("BZh91")), "a bzip2 file");
    assert_non_null(strstr(img_guess(STR("??")), "boot signature"));
    enum img_format f;
    assert_int_equal(img_format_parse(STR("OVA"), &f, NULL), 0);
    assert_int_equal(f, IMG_TAR);
    assert_int_equal(img_format_parse(STR("iso"), &f, NULL), -EINVAL);
    assert_string_equal(img_qemu_driver(IMG_VPC), "vpc");
    assert_null(img_qemu_driver(IMG_TAR));
}

static void put_be(char *p, size_t n, uint64_t v)
{
    for (size_t i = 0; i < n; i++) {
        p[i] = (char)(v >> (8 * (n - 1 - i)));
    }
}

/* Each field of a good header set to what must be refused. */
static void qcow2_headers(void **state)
{
    const struct {
        size_t off, n;
        uint64_t value;
        const char *want; /* NULL: accepted */
    } cases[] = {
        {0, 0, 0, NULL},
        {4, 4, 1, "UnsupportedImage"},
        {4, 4, 4, "UnsupportedImage"},
        {8, 8, 4096, "BadImage"},
        {16, 4, 10, "BadImage"},
        {20, 4, 8, "BadImage"},
        {20, 4, 22, "BadImage"},
        {24, 8, 0, "BadImage"},
        {24, 8, 1 << 20, NULL},
        {24, 8, (1 << 20) + 1, "ImageTooLarge"},
        {24, 8, UINT64_MAX, "ImageTooLarge"},
        {32, 4, 1, "UnsupportedImage"},
        {32, 4, 2, "UnsupportedImage"},
        {72, 8, 1, NULL},
        {72, 8, 2, "BadImage"},
        {72, 8, 4, "BadImage"},
        {72, 8, 8, NULL},
        {72, 8, 16, NULL},
        {72, 8, 32, "UnsupportedImage"},
        {72, 8, UINT64_C(1) << 63, "UnsupportedImage"},
        {100, 4, 0, "BadImage"},
        {100, 4, 1 << 30, "BadImage"},
        {104, 4, 0x44415441, "BadImage"},
        {104, 4, 0x0537be77, "BadImage"},
        {108, 4, 0x7fffffff, NULL}, /* the list ends before it */
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char h[512] = "QFI\xfb";
        struct err err = ERR_INIT;
        uint64_t size = 0;
        put_be(h + 4, 4, 3);
        put_be(h + 20, 4, 16);
        put_be(h + 24, 8, 1 << 19);
        put_be(h + 100, 4, 104);
        put_be(h + cases[i].off, cases[i].n, cases[i].value);
        if (cases[i].off == 0) {
            memcpy(h, "QFI\xfb", 4);
        }
        int rc = img_check(IMG_QCOW2, str_n(h, sizeof(h)), 1 << 20, &size, &err);
        if ((rc == 0) != (cases[i].want == NULL) ||
            (rc != 0 && strcmp(err.name, cases[i].want) != 0)) {
            fail_msg("case %zu: %d %s %s", i, rc, err.name ? err.name : "", err.msg);
        }
    }
}

static void sparse_writes_and_copies(void **state)
{
    struct tmpdir t;
    char a[PATH_MAX], b[PATH_MAX];
    static char buf[COPY_BLOCK], back[COPY_BLOCK];
    struct err err = ERR_INIT;
    struct stat st;
    (void)state;
    tmpdir_init(&t, "copy");
    AUTO_FD fa = open(tmpdir_path(&t, "a", a), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    memset(buf, 0, sizeof(buf));
    memset(buf + 8192, 'x', 100);
    buf[sizeof(buf) - 1] = 'y';
    assert_int_equal(copy_write_sparse(fa, buf, sizeof(buf), 4 << 20, &err), 0);
    assert_int_equal(pread(fa, back, sizeof(back), 4 << 20), sizeof(back));
    assert_memory_equal(buf, back, sizeof(buf));
    assert_int_equal(fstat(fa, &st), 0);
    assert_true(st.st_blocks * 512 <= 16384);
    for (int end_in_hole = 0; end_in_hole < 2; end_in_hole++) {
        uint64_t size = (4 << 20) + sizeof(buf);
        if (end_in_hole) {
            assert_int_equal(ftruncate(fa, 64 << 20), 0);
            size = 64 << 20;
        }
        unlink(tmpdir_path(&t, "b", b));
        AUTO_FD fb = open(b, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        assert_int_equal(copy_file(fa, fb, size, NULL, NULL, &err), 0);
        assert_int_equal(fstat(fb, &st), 0);
        assert_int_equal(st.st_size, size);
        assert_true(st.st_blocks * 512 <= 65536);
        assert_int_equal(pread(fb, back, sizeof(back), 4 << 20), sizeof(back));
        assert_memory_equal(buf, back, sizeof(buf));
    }
    AUTO_FD fc = open(a, O_RDWR | O_CLOEXEC);
    assert_int_equal(copy_file(fa, fc, UINT64_C(1) << 40, NULL, NULL, &err),
                     -EIO); /* longer than the source */
    err_clear(&err);
    assert_int_equal(copy_check_room(fa, UINT64_C(1) << 60, &err), -ENOSPC);
    assert_true(copy_reserve(UINT64_C(100) << 30) == UINT64_C(1) << 30 &&
                copy_reserve(20 << 20) == 1 << 20);
    tmpdir_done(&t);
}

static void count_id(void *ctx, struct str id)
{
    (void)id;
    ++*(int *)ctx;
}

static void folders(void **state)
{
    struct tmpdir t;
    struct err err = ERR_INIT;
    struct folder *f = NULL, *g = NULL;
    int dir = -1, n = 0, fd = -1;
    struct str id = STR("vol-00000000000000001");
    (void)state;
    tmpdir_init(&t, "folder");
    assert_int_equal(folder_open(t.path, &f, &err), 0);
    assert_int_equal(folder_open(t.path, &g, &err), -EBUSY);
    assert_int_equal(folder_begin(f, FOLDER_VOLUME, id, &dir, &err), 0);
    assert_int_equal(folder_write_file(dir, "data", STR("abc"), &err), 0);
    assert_false(folder_has(f, FOLDER_VOLUME, id)); /* not before it is complete */
    assert_int_equal(folder_each(f, FOLDER_VOLUME, count_id, &n, &err), 0);
    assert_int_equal(n, 0);
    close(dir);
    /* as after a kill: begun again from nothing */
    folder_close(f);
    assert_int_equal(folder_open(t.path, &f, NULL), 0);
    err_clear(&err);
    assert_int_equal(folder_clean(f, &err), 0);
    assert_int_equal(folder_begin(f, FOLDER_VOLUME, id, &dir, &err), 0);
    assert_int_equal(openat(dir, "data", O_RDONLY), -1);
    assert_int_equal(folder_write_file(dir, "data", STR("abc"), &err), 0);
    assert_int_equal(folder_write_file(dir, "unregistered", STR(""), &err), 0);
    assert_int_equal(folder_publish(f, FOLDER_VOLUME, id, dir, &err), 0);
    close(dir);
    assert_true(folder_has(f, FOLDER_VOLUME, id));
    assert_false(folder_has(f, FOLDER_IMAGE, id));
    assert_int_equal(folder_open_file(f, FOLDER_VOLUME, id, "data", O_RDONLY, &fd, &err), 0);
    close(fd);
    assert_int_equal(folder_remove_file(f, FOLDER_VOLUME, id, "unregistered", &err), 0);
    assert_int_equal(folder_remove_file(f, FOLDER_VOLUME, id, "unregistered", &err), 0);
    /* a link in the place of a file is not followed */
    char link[PATH_MAX];
    assert_int_equal(
        symlink("/etc/passwd", tmpdir_path(&t, "volumes/vol-00000000000000001/l", link)), 0);
    assert_true(folder_open_file(f, FOLDER_VOLUME, id, "l", O_RDONLY, &fd, &err) < 0);
    err_clear(&err);
    assert_int_equal(folder_remove(f, FOLDER_VOLUME, id, &err), 0);
    assert_int_equal(folder_remove(f, FOLDER_VOLUME, id, &err), 0);
    assert_false(folder_has(f, FOLDER_VOLUME, id));
    assert_int_equal(access("/etc/passwd", F_OK), 0);
    folder_close(f);
    tmpdir_done(&t);
}

/* What each sandbox must stop; 0 = it went through. Exit status or signal of the child. */
static int in_child(bool is_strict, int what, const char *folder)
{
    pid_t pid = fork();
    if (pid == 0) {
        bool has = false;
        signal(SIGSYS, SIG_DFL);
        if (sandbox_limits(1 << 20, NULL) != 0 ||
            (is_strict ? sandbox_strict(NULL) : sandbox_tool(folder, &has, NULL)) != 0) {
            _exit(99);
        }
        char path[PATH_MAX];
        snprintf(path, sizeof(path), "%s/new", folder);
        int fd = -1;
        switch (what) {
        case 0: fd = 0; break;
        case 1: fd = socket(AF_INET, SOCK_STREAM, 0); break;
        case 2: fd = open("/etc/hostname", O_RDONLY); break;
        case 3: fd = open(path, O_RDWR | O_CREAT, 0600); break;
        case 4: fd = execl("/bin/true", "true", (char *)NULL); break;
        default: fd = kill(getppid(), 0); break;
        }
        _exit(fd >= 0 ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) ? 1000 + WTERMSIG(status) : WEXITSTATUS(status);
}

static void sandboxes(void **state)
{
    struct tmpdir t;
    (void)state;
    tmpdir_init(&t, "sandbox");
    assert_int_equal(in_child(true, 0, t.path), 0);
    assert_int_equal(in_child(true, 1, t.path), 1000 + SIGSYS);
    assert_int_equal(in_child(true, 4, t.path), 1000 + SIGSYS);
    assert_int_equal(in_child(true, 5, t.path), 1000 + SIGSYS);
    assert_int_equal(in_child(false, 0, t.path), 0);
    assert_int_equal(in_child(false, 1, t.path), 1);
    assert_int_equal(in_child(false, 3, t.path), 0);
    assert_int_equal(in_child(false, 4, t.path), 0);
    assert_int_equal(in_child(false, 5, t.path), 1);
    assert_int_equal(in_child(false, 2, t.path),
                     1); /* Landlock: only programs, libraries and the folder */
    tmpdir_done(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sniffing),
        cmocka_unit_test(qcow2_headers),
        cmocka_unit_test(sparse_writes_and_copies),
        cmocka_unit_test(folders),
        cmocka_unit_test(sandboxes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
