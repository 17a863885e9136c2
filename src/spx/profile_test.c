#include "base/arena.h"
#include "base/file.h"
#include "base/test.h"
#include "spx/caller.h"
#include "spx/clients.h"
#include "spx/profile.h"
#include "testkit/tmpdir.h"
#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>

#define S3_LINES "s3 =\n    addressing_style = path\n    signature_version = s3v4\n"

static const struct profile_pair pairs[] = {
    {"region", {"r1", 2}},
    {"endpoint_url", {"https://h:9999", 14}},
    {"aws_session_token", {NULL, 0}},
};

static void test_merge(void **state)
{
    static const char ours[] = "region = r1\nendpoint_url = https://h:9999\n";
    static const struct {
        const char *name, *in, *before, *after; /* what stands before and after our lines */
    } cases[] = {
        {"empty file", "", "[profile spinifex]\n", ""},
        {"appended", "[default]\nregion = eu\n",
         "[default]\nregion = eu\n\n[profile spinifex]\n", ""},
        {"no newline at the end", "[default]\nregion = eu",
         "[default]\nregion = eu\n\n[profile spinifex]\n", ""},
        {"replaced", "[profile spinifex]\nregion = old\n[profile b]\nregion = b\n",
         "[profile spinifex]\n", "[profile b]\nregion = b\n"},
        {"other keys and comments stay",
         "# top\n[profile spinifex]\n# mine\noutput = text\nREGION=old\n\n[default]\n",
         "# top\n[profile spinifex]\n# mine\noutput = text\n", "\n[default]\n"},
        {"nested settings stay",
         "[profile spinifex]\nendpoint_url = old\ns3 =\n  endpoint_url = http://s3\n",
         "[profile spinifex]\ns3 =\n  endpoint_url = http://s3\n", ""},
        {"what belongs to an old value goes with it",
         "[profile spinifex]\nregion =\n  a\n  b\noutput = json\n",
         "[profile spinifex]\noutput = json\n", ""},
        {"an indented line behind the header", "[profile spinifex]\n  region = x\n",
         "[profile spinifex]\n", ""},
        {"an indented header", "[profile spinifex]\n  [profile b]\nregion = x\n",
         "[profile spinifex]\n", "[profile b]\nregion = x\n"},
        {"what looks like a header in a value", "[default]\ns3 =\n  [profile spinifex]\n",
         "[default]\ns3 =\n  [profile spinifex]\n\n[profile spinifex]\n", ""},
        {"blank lines at the end", "[profile spinifex]\noutput = json\n\n\n[default]\n",
         "[profile spinifex]\noutput = json\n", "\n\n[default]\n"},
        {"the last line has no end", "[profile spinifex]\noutput = json",
         "[profile spinifex]\noutput = json\n", ""},
        {"a token of before goes", "[profile spinifex]\naws_session_token = x\n",
         "[profile spinifex]\n", ""},
        {"names that begin alike",
         "[profile spinifex2]\nregion = x\n[profile spinifex]\nregion = y\n",
         "[profile spinifex2]\nregion = x\n[profile spinifex]\n", ""},
        {"blanks and quotes", "[ profile   \"spinifex\" ]\nregion = y\n",
         "[ profile   \"spinifex\" ]\n", ""},
        {"a section of another kind", "[spinifex]\nregion = y\n",
         "[spinifex]\nregion = y\n\n[profile spinifex]\n", ""},
        {"header without end", "[profile spinifex\nregion = y\n",
         "[profile spinifex\nregion = y\n\n[profile spinifex]\n", ""},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO_BUF out, want, again;
        buf_init(&out, 10000);
        buf_init(&want, 10000);
        buf_init(&again, 10000);
        buf_fmt(&want, "%s%s%s", cases[i].before, ours, cases[i].after);
        profile_merge(str_c(cases[i].in), "profile spinifex", pairs, ARRAY_LEN(pairs), &out);
        if (strcmp(buf_cstr(&out), buf_cstr(&want)) != 0) {
            fail_msg("%s: got\n%s\nwant\n%s", cases[i].name, buf_cstr(&out), buf_cstr(&want));
        }
        /* Once more changes nothing. */
        profile_merge(buf_str(&out), "profile spinifex", pairs, ARRAY_LEN(pairs), &again);
        assert_string_equal(buf_cstr(&again), buf_cstr(&out));
    }
}

static void test_merge_keeps_line_ends(void **state)
{
    AUTO_BUF out;
    buf_init(&out, 10000);
    profile_merge(STR("[default]\r\nregion = eu\r\n"), "profile spinifex", pairs,
                  ARRAY_LEN(pairs), &out);
    assert_string_equal(buf_cstr(&out), "[default]\r\nregion = eu\r\n\r\n[profile spinifex]\r\n"
                                        "region = r1\r\nendpoint_url = https://h:9999\r\n");
}

static void expect_file(const char *path, const char *want)
{
    AUTO_FREE char *text = NULL;
    size_t n = 0;
    struct stat st;
    assert_int_equal(file_read(path, 10000, &text, &n, NULL), 0);
    assert_string_equal(text, want);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
}

static void test_files(void **state)
{
    struct tmpdir d;
    char path[PATH_MAX], config[512], credentials[512];
    struct profile_user u;
    const struct profile p = {.name = "spinifex",
                              .endpoint = "https://h:1",
                              .ca_path = "/ca.pem",
                              .region = "r",
                              .access_key = STR("AKIA"),
                              .secret = STR("s")};
    tmpdir_init(&d, "profile");
    setenv("HOME", d.path, 1);
    unsetenv("SUDO_USER");
    unsetenv("AWS_CONFIG_FILE");
    unsetenv("AWS_SHARED_CREDENTIALS_FILE");
    assert_int_equal(profile_find_user(&u, NULL), 0);
    assert_false(u.is_other);
    assert_string_equal(u.home, d.path);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(profile_write(&u, &p, config, credentials, sizeof(config), NULL), 0);
        expect_file(config, "[profile spinifex]\nregion = r\nendpoint_url = "
                            "https://h:1\nca_bundle = /ca.pem\n" S3_LINES);
        expect_file(credentials,
                    "[spinifex]\naws_access_key_id = AKIA\naws_secret_access_key = s\n");
    }
    assert_string_equal(config, tmpdir_path(&d, ".aws/config", path));
    assert_int_equal(stat(tmpdir_path(&d, ".aws", path), &(struct stat){0}), 0);

    /* Files that the environment names, one of them a link that stays one. */
    char real[PATH_MAX], link_path[PATH_MAX];
    tmpdir_write(&d, "real", "[default]\nx = 1\n", real);
    assert_int_equal(symlink(real, tmpdir_path(&d, "link", link_path)), 0);
    setenv("AWS_CONFIG_FILE", link_path, 1);
    setenv("AWS_SHARED_CREDENTIALS_FILE", "~/creds", 1);
    assert_int_equal(profile_write(&u, &p, config, credentials, sizeof(config), NULL), 0);
    expect_file(real, "[default]\nx = 1\n\n[profile spinifex]\nregion = r\nendpoint_url = "
                      "https://h:1\nca_bundle = /ca.pem\n" S3_LINES);
    expect_file(tmpdir_path(&d, "creds", path),
                "[spinifex]\naws_access_key_id = AKIA\naws_secret_access_key = s\n");
    struct stat st;
    assert_int_equal(lstat(link_path, &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    unsetenv("AWS_CONFIG_FILE");
    unsetenv("AWS_SHARED_CREDENTIALS_FILE");
    tmpdir_done(&d);
}

/* As root for somebody else: the files are his, and links of his lead root nowhere. */
static void test_another_user(void **state)
{
    struct tmpdir d;
    char config[512], credentials[512], secret[PATH_MAX], home[PATH_MAX];
    struct profile_user u = {.uid = 65534, .gid = 65534, .name = "nobody", .is_other = true};
    const struct profile p = {.name = "spinifex",
                              .endpoint = "e",
                              .ca_path = "c",
                              .region = "r",
                              .access_key = STR("A"),
                              .secret = STR("s")};
    struct stat st;
    if (geteuid() != 0) {
        skip();
    }
    tmpdir_init(&d, "profile");
    assert_int_equal(chmod(d.path, 0711), 0);
    assert_int_equal(mkdir(tmpdir_path(&d, "home", home), 0700), 0);
    assert_int_equal(chown(home, 65534, 65534), 0);
    snprintf(u.home, sizeof(u.home), "%.300s", home);
    assert_int_equal(profile_write(&u, &p, config, credentials, sizeof(config), NULL), 0);
    assert_int_equal(stat(credentials, &st), 0);
    assert_int_equal(st.st_uid, 65534);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(geteuid(), 0);

    tmpdir_write(&d, "secret", "of root\n", secret);
    assert_int_equal(unlink(config), 0);
    assert_int_equal(symlink(secret, config), 0);
    struct err err = ERR_INIT;
    assert_true(profile_write(&u, &p, config, credentials, sizeof(config), &err) < 0);
    assert_int_equal(geteuid(), 0);
    AUTO_FREE char *text = NULL;
    size_t n = 0;
    assert_int_equal(file_read(secret, 100, &text, &n, NULL), 0);
    assert_string_equal(text, "of root\n");
    tmpdir_done(&d);
}

static void test_reading(void **state)
{
    static const char text[] = "# x\n[default]\nregion = wrong\n[profile \"spinifex\"] ; c\r\n"
                               "region=eu-west-9 \r\n endpoint_url = of the line before\n"
                               "s3 =\n  endpoint_url = nested\nEndpoint_URL = https://h:9999\n"
                               "[profile spinifex2]\nca_bundle = wrong\n";
    assert_str(profile_get(str_c(text), "profile spinifex", "endpoint_url"), "https://h:9999");
    assert_str(profile_get(str_c(text), "default", "region"), "wrong");
    assert_false(str_is_set(profile_get(str_c(text), "profile spinifex", "ca_bundle")));
    assert_false(str_is_set(profile_get(str_c(text), "profile spin", "region")));
    assert_false(str_is_set(profile_get(STR(""), "x", "y")));
}

/* What the environment says beats the files; a key is never put together from both. */
static void test_keys(void **state)
{
    static const char *const all[] = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",
                                      "AWS_SESSION_TOKEN", "AWS_REGION",
                                      "AWS_ENDPOINT_URL",  "AWS_CA_BUNDLE"};
    AUTO(arena_freep) struct arena *a = arena_new(4 << 20);
    struct profile_user u = {.name = "me"};
    struct profile_keys k;
    struct tmpdir d;
    char path[PATH_MAX];
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        unsetenv(all[i]);
    }
    tmpdir_init(&d, "profile");
    setenv(
        "AWS_CONFIG_FILE",
        tmpdir_write(&d, "config", "[profile spinifex]\nregion = r\nendpoint_url = e\n", path),
        1);
    setenv("AWS_SHARED_CREDENTIALS_FILE",
           tmpdir_write(&d, "credentials",
                        "[spinifex]\naws_access_key_id = A\naws_secret_access_key = s\n", path),
           1);
    assert_int_equal(profile_read(a, &u, "spinifex", &k, NULL), 0);
    assert_string_equal(k.access_key, "A");
    assert_string_equal(k.secret, "s");
    assert_string_equal(k.region, "r");
    assert_string_equal(k.endpoint, "e");
    assert_string_equal(k.ca_path, "");
    struct err err = ERR_INIT;
    assert_int_equal(profile_read(a, &u, "other", &k, &err), -ENOENT);
    assert_string_equal(err.name, "NoCredentials");
    setenv("AWS_ACCESS_KEY_ID", "B", 1);
    err_clear(&err);
    assert_int_equal(profile_read(a, &u, "spinifex", &k, &err), -ENOENT);
    setenv("AWS_SECRET_ACCESS_KEY", "t", 1);
    setenv("AWS_REGION", "q", 1);
    assert_int_equal(profile_read(a, &u, "spinifex", &k, NULL), 0);
    assert_string_equal(k.access_key, "B");
    assert_string_equal(k.secret, "t");
    assert_string_equal(k.region, "q");
    unsetenv("AWS_ACCESS_KEY_ID");
    unsetenv("AWS_SECRET_ACCESS_KEY");
    unsetenv("AWS_REGION");
    unsetenv("AWS_CONFIG_FILE");
    unsetenv("AWS_SHARED_CREDENTIALS_FILE");
    tmpdir_done(&d);
}

/* What was added is gone again, and every other byte is there. */
static void test_a_profile_is_taken_out_again(void **state)
{
    static const struct {
        const char *text, *without;
    } cases[] = {
        {"", ""},
        {"[profile spinifex]\nregion = r\n", ""},
        {"[default]\nregion = x\n", "[default]\nregion = x\n"},
        {"[default]\nregion = x\n\n[profile spinifex]\nregion = r\ns3 =\n    a = b\n",
         "[default]\nregion = x\n"},
        {"[profile spinifex]\nregion = r\n\n[default]\nx = y\n", "[default]\nx = y\n"},
        {"# mine\n[ profile \"spinifex\" ]\nregion = r\n", "# mine\n"},
        {"[profile spinifex2]\nregion = r\n", "[profile spinifex2]\nregion = r\n"},
        {"[a]\nx = 1\n\n\n[profile spinifex]", "[a]\nx = 1\n"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO_BUF out;
        buf_init(&out, 4096);
        profile_drop(str_c(cases[i].text), "profile spinifex", &out);
        if (!str_eqc(buf_str(&out), cases[i].without)) {
            fail_msg("%zu: \"%s\"", i, buf_cstr(&out));
        }
    }
    static const char *const texts[] = {"", "[default]\nregion = x\n", "# c\n[a]\nb=c\r\n"};
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        const struct profile_pair pair = {"region", STR("r")};
        AUTO_BUF with;
        AUTO_BUF out;
        buf_init(&with, 4096);
        buf_init(&out, 4096);
        profile_merge(str_c(texts[i]), "profile spinifex", &pair, 1, &with);
        profile_drop(buf_str(&with), "profile spinifex", &out);
        assert_string_equal(buf_cstr(&out), texts[i]);
    }
}

static void test_the_environment_before_sudo(void **state)
{
    static const struct {
        const char *name, *want;
    } cases[] = {
        {"AWS_PROFILE", "work"}, {"AWS_CONFIG_FILE", "/a b=c"},
        {"AWS_PROFILE2", NULL},  {"AWS", NULL},
        {"EMPTY", ""},           {"LAST", "x"},
        {"OFILE", NULL},
    };
    static const char vars[] = "AWS_PROFILE=work\0AWS_CONFIG_FILE=/a b=c\0EMPTY=\0LAST=x";
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct str v = caller_find(str_n(vars, sizeof(vars) - 1), cases[i].name);
        if (str_is_set(v) != (cases[i].want != NULL) ||
            (cases[i].want && !str_eqc(v, cases[i].want))) {
            fail_msg("%s: '%.*s'", cases[i].name, STR_ARG(v));
        }
    }
    static const struct {
        const char *text;
        unsigned parent;
        bool is_sudo;
    } stats[] = {
        {"12 (sudo) S 11 12 1 0", 11, true},
        {"12 (bash) S 11 12", 11, false},
        {"12 (a) (b) S 7 1", 7, false},
        {"12 (sudo) S 0 0", 0, true},
        {"12 (x) S 5 (sudo) S 11", 11, false},
        {"", 0, false},
        {"12 (sudo)", 0, false},
        {"12 sudo) S 4 ", 0, false},
        {")(", 0, false},
        {"12 () S 9 ", 9, false},
    };
    for (size_t i = 0; i < ARRAY_LEN(stats); i++) {
        unsigned parent = 99;
        bool is_sudo = caller_is_sudo(str_c(stats[i].text), &parent);
        if (is_sudo != stats[i].is_sudo || parent != stats[i].parent) {
            fail_msg("'%s': %d %u", stats[i].text, is_sudo, parent);
        }
    }
}

static void test_texts_for_clients(void **state)
{
    const struct client_setup c = {.profile = "p",
                                   .region = "r-1",
                                   .endpoint = "https://h:1",
                                   .s3_endpoint = "https://h:2",
                                   .ca_path = "/c\"\\${x}.pem"};
    static const struct {
        const char *name, *want;
    } cases[] = {
        {"aws", "export AWS_PROFILE=p\n"},
        {"boto3", "{\"verify\": \"/c\\\"\\\\${x}.pem\"}"},
        {"node", "  endpoint: \"https://h:2\",\n  region: \"r-1\",\n  forcePathStyle: true"},
        {"rclone",
         "profile = p\nregion = r-1\nlocation_constraint = r-1\nendpoint = https://h:2\n"},
        {"terraform", "custom_ca_bundle            = \"/c\\\"\\\\$${x}.pem\"\n"},
        {"terraform", "    ec2 = \"https://h:1\"\n    s3  = \"https://h:2\"\n"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO_BUF out;
        buf_init(&out, 16384);
        assert_true(client_text(cases[i].name, &c, &out));
        if (!strstr(buf_cstr(&out), cases[i].want)) {
            fail_msg("%zu: %s", i, buf_cstr(&out));
        }
    }
    AUTO_BUF out;
    buf_init(&out, 100);
    assert_false(client_text("s3cmd", &c, &out));
    assert_true(buf_str(&out).n == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_environment_before_sudo),
        cmocka_unit_test(test_texts_for_clients),
        cmocka_unit_test(test_a_profile_is_taken_out_again),
        cmocka_unit_test(test_merge),
        cmocka_unit_test(test_merge_keeps_line_ends),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_another_user),
        cmocka_unit_test(test_reading),
        cmocka_unit_test(test_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
