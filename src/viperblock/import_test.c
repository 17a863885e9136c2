#include "base/time.h"
#include "viperblock/import_run.h"
#include "viperblock/test_env.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

/* Real files of every format, and files that want to reach beyond themselves, through the real
 * helper and qemu-img. */

#define MIB 16u

static struct tmpdir tmp;
static char disk[PATH_MAX];

static int setup(void **state)
{
    struct env *e = malloc(sizeof(*e));
    tmpdir_init(&tmp, "imp");
    env_init(e, tmp.path);
    e->max_image_size = UINT64_C(64) << 20;
    env_start(e);
    tmpdir_path(&tmp, "disk.raw", disk);
    make_disk(disk, MIB);
    *state = e;
    return 0;
}

static int teardown(void **state)
{
    env_stop(*state);
    free(*state);
    tmpdir_done(&tmp);
    return 0;
}

struct good {
    const char *name, *make, *more, *format;
    bool is_rounded; /* the format rounds the size up */
};

static const struct good goods[] = {
    {"raw", "cp disk.raw x", "", "raw"},
    {"raw of odd size", "cp disk.raw x; printf tail >>x", "", "raw"},
    {"raw without a boot signature, said so", "head -c 65536 /dev/urandom >x; cp x disk.odd",
     "\"format\":\"raw\"", "raw"},
    {"qcow2", "qemu-img convert -O qcow2 disk.raw x", "", "qcow2"},
    {"qcow2 compressed", "qemu-img convert -c -O qcow2 disk.raw x", "\"format\":\"qcow2\"",
     "qcow2"},
    {"qcow2 version 2", "qemu-img convert -O qcow2 -o compat=0.10 disk.raw x", "", "qcow2"},
    {"qcow2 zstd", "qemu-img convert -c -O qcow2 -o compression_type=zstd disk.raw x", "",
     "qcow2"},
    {"qcow2 of large clusters", "qemu-img convert -O qcow2 -o cluster_size=2M disk.raw x", "",
     "qcow2"},
    {"qcow2 of small clusters", "qemu-img convert -O qcow2 -o cluster_size=512 disk.raw x", "",
     "qcow2"},
    {"vmdk", "qemu-img convert -O vmdk disk.raw x", "", "vmdk"},
    {"vmdk stream-optimized",
     "qemu-img convert -O vmdk -o subformat=streamOptimized disk.raw x", "", "vmdk"},
    {"vhdx", "qemu-img convert -O vhdx disk.raw x", "", "vhdx"},
    {"vhd dynamic", "qemu-img convert -O vpc disk.raw x", "", "vhd", true},
    {"vhd fixed", "qemu-img convert -O vpc -o subformat=fixed disk.raw x", "", "raw", true},
    {"vhd fixed, said so", "qemu-img convert -O vpc -o subformat=fixed disk.raw x",
     "\"format\":\"vhd\"", "raw", true},
    {"gz", "gzip -c disk.raw >x", "", "raw"},
    {"gz of two members",
     "(head -c 1000000 disk.raw | gzip; tail -c +1000001 disk.raw | gzip) >x", "", "raw"},
    {"xz", "xz -0 -c disk.raw >x", "", "raw"},
    {"zst", "zstd -q -c disk.raw >x", "", "raw"},
    {"qcow2.gz", "qemu-img convert -O qcow2 disk.raw y; gzip -c y >x", "", "qcow2"},
    {"tar", "tar -cf x disk.raw", "", "raw"},
    {"tar with a sparse file", "tar -S --format=gnu -cf x disk.raw", "", "raw"},
    {"tar.xz with a sparse file", "tar -S --format=gnu -cf y disk.raw; xz -0 -c y >x", "",
     "raw"},
    {"pax", "tar --format=posix -cf x disk.raw", "", "raw"},
    {"ova",
     "qemu-img convert -O vmdk -o subformat=streamOptimized disk.raw d.vmdk; echo '<xml/>' "
     ">d.ovf; echo x >d.mf; tar -cf x d.ovf d.mf d.vmdk",
     "\"format\":\"ova\"", "vmdk"},
    {"ova with long names",
     "qemu-img convert -O vmdk disk.raw d.vmdk; l=$(printf 'n%.0s' $(seq 1 150)); mv d.vmdk "
     "$l.vmdk; echo '<xml/>' >$l.ovf; tar --format=gnu -cf x $l.ovf $l.vmdk",
     "", "vmdk"},
};

#define BLOCK (512u << 10)

static void formats(void **state)
{
    struct env *e = *state;
    for (size_t i = 0; i < ARRAY_LEN(goods); i++) {
        struct err err = ERR_INIT;
        char x[PATH_MAX], id[32], name[64], data[PATH_MAX * 2], odd[PATH_MAX];
        sh(tmp.path, goods[i].make);
        tmpdir_path(&tmp, "x", x);
        snprintf(name, sizeof(name), "image-%zu", i);
        if (env_import(e, x, name, goods[i].more, id, &err) != 0) {
            fail_msg("%s: %s: %s", goods[i].name, err.name, err.msg);
        }
        snprintf(data, sizeof(data), "%s/images/%s/data", e->data, id);
        const struct image *im = env_get_image(e, id);
        assert_non_null(im);
        struct stat st;
        assert_int_equal(stat(data, &st), 0);
        /* A base is read in blocks of snapshots: the last one is whole. */
        assert_int_equal(st.st_size, (im->size + BLOCK - 1) / BLOCK * BLOCK);
        assert_int_equal(im->size % 512, 0);
        bool is_odd = access(tmpdir_path(&tmp, "disk.odd", odd), F_OK) == 0;
        if (strcmp(goods[i].name, "raw of odd size") != 0 &&
            !same_bytes(is_odd ? odd : disk, data)) {
            fail_msg("%s: the bytes differ", goods[i].name);
        }
        if (is_odd) {
            unlink(odd);
        } else if (!goods[i].is_rounded && strcmp(goods[i].name, "raw of odd size") != 0) {
            assert_int_equal(st.st_size, MIB << 20);
        }
        assert_true(st.st_blocks * 512 < 4 << 20 || is_odd); /* zeros stay holes */
    }
    assert_int_equal(env_count(e, "images"), ARRAY_LEN(goods));
}

struct bad {
    const char *name, *make, *more, *want;
};

static const struct bad bads[] = {
    {"backing file", "qemu-img create -q -f qcow2 -b /etc/passwd -F raw x", "", "BadImage"},
    {"backing file, said raw inside", "qemu-img create -q -f qcow2 -b /etc/passwd -F raw x 1M",
     "\"format\":\"qcow2\"", "BadImage"},
    {"external data file",
     "qemu-img create -q -f qcow2 -o data_file=/tmp/spx-no-such-file,data_file_raw=on x 1M; rm "
     "-f /tmp/spx-no-such-file",
     "", "BadImage"},
    {"encrypted",
     "qemu-img create -q -f qcow2 x 1M; printf '\\002' | dd of=x bs=1 seek=35 conv=notrunc "
     "status=none",
     "", "UnsupportedImage"},
    {"too large a disk", "qemu-img create -q -f qcow2 x 65M", "", "ImageTooLarge"},
    {"size field of 2^63",
     "qemu-img create -q -f qcow2 x 1M; printf '\\200' | dd of=x bs=1 seek=24 conv=notrunc "
     "status=none",
     "", "ImageTooLarge"},
    {"too large a raw",
     "truncate -s 65M x; printf '\\125\\252' | dd of=x bs=1 seek=510 conv=notrunc status=none",
     "", "ImageTooLarge"},
    {"zip bomb",
     "truncate -s 1G y; printf '\\125\\252' | dd of=y bs=1 seek=510 conv=notrunc status=none; "
     "gzip -1 -c y >x; rm y",
     "", "ImageTooLarge"},
    {"bomb in layers",
     "truncate -s 300M y; printf '\\125\\252' | dd of=y bs=1 seek=510 conv=notrunc "
     "status=none; gzip -1 -c y | zstd -q -c | xz -0 -c >x; rm y",
     "", "ImageTooLarge"},
    {"packed too often", "printf a | gzip | gzip | gzip | gzip | gzip | gzip >x", "",
     "BadImage"},
    {"vmdk descriptor", "qemu-img create -q -f vmdk -o subformat=monolithicFlat x 1M", "",
     "UnsupportedImage"},
    {"vmdk descriptor naming a device",
     "printf '# Disk DescriptorFile\\nversion=1\\ncreateType=\"monolithicFlat\"\\nRW 8 FLAT "
     "\"/etc/passwd\" 0\\n' >x",
     "", "UnsupportedImage"},
    {"vmdk with a parent",
     "qemu-img convert -O vmdk disk.raw x; printf '# Disk "
     "DescriptorFile\\nversion=1\\nCID=1\\nparentCID=11111111\\ncreateType="
     "\"monolithicSparse\"\\nparentFileNameHint=\"/etc/passwd\"\\n' | dd of=x bs=512 seek=1 "
     "conv=notrunc status=none",
     "", "BadImage"},
    {"vmdk whose head has no size",
     "qemu-img convert -O vmdk disk.raw x; dd if=/dev/zero of=x bs=1 seek=12 count=8 "
     "conv=notrunc status=none",
     "", "BadImage"},
    {"vhd with a parent",
     "qemu-img convert -O vpc disk.raw x; printf '\\004' | dd of=x bs=1 seek=63 conv=notrunc "
     "status=none",
     "", "BadImage"},
    {"vhdx cut short", "qemu-img convert -O vhdx disk.raw y; head -c 300000 y >x; rm y", "",
     "BadImage"},
    {"qcow2 cut short", "qemu-img convert -O qcow2 disk.raw y; head -c 70000 y >x; rm y", "",
     "BadImage"},
    {"qcow2 without its end", "qemu-img convert -O qcow2 disk.raw x; truncate -s -131072 x", "",
     "BadImage"},
    {"vmdk without its end", "qemu-img convert -O vmdk disk.raw x; truncate -s -131072 x", "",
     "BadImage"},
    {"stream-optimized vmdk without its end",
     "qemu-img convert -O vmdk -o subformat=streamOptimized disk.raw x; truncate -s $(($(stat "
     "-c %s x) / 2)) x",
     "", "BadImage"},
    {"vhdx without its end", "qemu-img convert -O vhdx disk.raw x; truncate -s -2M x", "",
     "BadImage"},
    {"vhd without its end", "qemu-img convert -O vpc disk.raw x; truncate -s -3M x", "",
     "BadImage"},
    {"qcow2 with tables out of bounds",
     "qemu-img convert -O qcow2 disk.raw x; printf '\\377\\377\\377' | dd of=x bs=1 seek=40 "
     "conv=notrunc status=none",
     "", "BadImage"},
    {"gz cut short", "gzip -c disk.raw | head -c 20000 >x", "", "BadImage"},
    {"gz damaged",
     "gzip -c disk.raw >x; printf '\\377\\377\\377\\377' | dd of=x bs=1 seek=5000 conv=notrunc "
     "status=none",
     "", "BadImage"},
    {"xz damaged",
     "xz -0 -c disk.raw >x; printf '\\377\\377\\377\\377' | dd of=x bs=1 seek=5000 "
     "conv=notrunc status=none",
     "", "BadImage"},
    {"zst cut short", "zstd -q -c disk.raw | head -c 20000 >x", "", "BadImage"},
    {"tar cut short", "tar -cf - disk.raw | head -c 1000000 >x", "", "BadImage"},
    {"tar without a disk", "echo a >a.txt; tar -cf x a.txt", "", "BadImage"},
    {"tar with two disks", "cp disk.raw other.raw; tar -cf x disk.raw other.raw; rm other.raw",
     "", "UnsupportedImage"},
    {"tar with a link", "ln -sf /etc/passwd l.raw; tar -cf x l.raw; rm l.raw", "", "BadImage"},
    {"pax sparse", "tar -S --format=posix -cf x disk.raw", "", "UnsupportedImage"},
    {"zip", "printf 'PK\\003\\004aaaaaaaaaaaaaaaaaaaaaaaaa' >x", "", "UnsupportedImage"},
    {"web page", "printf '<html><body>404</body></html>' >x", "", "UnsupportedImage"},
    {"text", "seq 1 1000 >x", "", "UnsupportedImage"},
    {"empty", ": >x", "", "UnsupportedImage"},
    {"empty raw", ": >x", "\"format\":\"raw\"", "BadImage"},
    {"one kind said, another there", "cp disk.raw x", "\"format\":\"vmdk\"", "BadImage"},
    {"fixed VHD said, none there", "cp disk.raw x", "\"format\":\"vhd\"", "BadImage"},
};

static void hostile(void **state)
{
    struct env *e = *state;
    for (size_t i = 0; i < ARRAY_LEN(bads); i++) {
        struct err err = ERR_INIT;
        char x[PATH_MAX], id[32];
        sh(tmp.path, bads[i].make);
        tmpdir_path(&tmp, "x", x);
        int rc = env_import(e, x, "hostile", bads[i].more, id, &err);
        if (rc == 0 || strcmp(err.name, bads[i].want) != 0) {
            fail_msg("%s: %s: %s, wanted %s", bads[i].name, rc == 0 ? "accepted" : err.name,
                     err.msg, bads[i].want);
        }
        assert_int_equal(env_count(e, "images"), 0);
        unlink(x);
    }
    assert_int_equal(env_get(e, STR("claim/imagename/" TEST_ACCOUNT "/hostile")).n, 0);
}

/* A pipe as source: what a download gives. */
static void from_a_pipe(void **state)
{
    struct env *e = *state;
    struct err err = ERR_INIT;
    char fifo[PATH_MAX], id[32], data[PATH_MAX * 2];
    sh(tmp.path, "mkfifo p; (cat disk.raw >p) >/dev/null 2>&1 </dev/null &");
    assert_int_equal(
        env_import(e, tmpdir_path(&tmp, "p", fifo), "piped", "\"size\":16777216", id, &err), 0);
    snprintf(data, sizeof(data), "%s/images/%s/data", e->data, id);
    assert_true(same_bytes(disk, data));
    /* folders and devices are no sources */
    err_clear(&err);
    assert_int_equal(env_import(e, "/dev/zero", "zero", "", id, &err), -EINVAL);
    err_clear(&err);
    assert_int_equal(env_import(e, "/etc", "etc", "", id, &err), -EINVAL);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(formats, setup, teardown),
        cmocka_unit_test_setup_teardown(hostile, setup, teardown),
        cmocka_unit_test_setup_teardown(from_a_pipe, setup, teardown),
    };
    if (argc != 2) {
        fprintf(stderr, "usage: import_test PATH-OF-spx-viperblock-import\n");
        return 2;
    }
    env_helper(argv[1], NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
