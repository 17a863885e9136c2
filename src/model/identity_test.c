#include "base/test.h"
#include "base/time.h"
#include "model/identity.h"
#include "model/keys.h"
#include "testkit/tmpdir.h"
#include <errno.h>

static struct tmpdir dir;
static struct kv *kv;
static struct keys *keys;
static struct arena *a;

static int setup(void **state)
{
    char path[PATH_MAX];
    tmpdir_init(&dir, "identity");
    a = arena_new(1u << 20);
    if (kv_open_sqlite(tmpdir_path(&dir, "state.db", path), &kv, NULL) < 0 ||
        keys_create_file(tmpdir_path(&dir, "root.key", path), (uid_t)-1, (gid_t)-1, NULL) < 0 ||
        keys_open_file(path, &keys, NULL) < 0) {
        return -1;
    }
    return 0;
}

static int teardown(void **state)
{
    kv_close(kv);
    keys_close(keys);
    arena_free(a);
    tmpdir_done(&dir);
    return 0;
}

static bool is_made_of(struct str s, const char *alphabet)
{
    for (size_t i = 0; i < s.n; i++) {
        if (!strchr(alphabet, s.p[i])) {
            return false;
        }
    }
    return true;
}

static void put(const char *key, const char *value)
{
    const struct kv_op op = {.type = KV_PUT, .key = str_c(key), .value = str_c(value)};
    assert_int_equal(kv_txn(kv, NULL, 0, &op, 1, NULL, NULL), 0);
}

static void test_ids_look_as_they_should(void **state)
{
    struct identity_new n;
    assert_int_equal(identity_create_account(kv, a, keys, STR("main"), &n, NULL), 0);
    assert_true(account_id_is_wellformed(n.account.id));
    assert_true(n.account.id.p[0] != '0');
    assert_int_equal(n.key.id.n, 20);
    assert_true(str_has_prefixc(n.key.id, "AKIA"));
    assert_true(is_made_of(n.key.id, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"));
    assert_int_equal(n.secret.n, 40);
    assert_true(str_has_prefixc(n.user.id, "AIDA"));
    assert_str(n.user.name, "admin");

    /* The store alone does not know the secret. */
    struct kv_item item;
    assert_int_equal(kv_get(kv, a, key_access_key(a, n.key.id), &item, NULL), 0);
    assert_true(str_find_str(item.value, n.secret) < 0);
}

/* Whoever asks for a key that was just made finds it. */
static void test_a_key_that_is_too_new_can_be_asked_for(void **state)
{
    AUTO(identity_closep) struct identity *id = NULL;
    struct identity_new n;
    struct aws_key k;
    assert_int_equal(identity_open(kv, keys, 5 * NS_PER_S, &id, NULL), 0);
    for (int i = 0; i < 30; i++) {
        struct str name = arena_fmt(a, "new-%d", i);
        assert_int_equal(identity_create_account(kv, a, keys, name, &n, NULL), 0);
        assert_int_equal(identity_ask_key(id, n.key.id, 5 * NS_PER_S, NULL), 0);
        assert_int_equal(identity_find_key(id, a, n.key.id, &k, NULL), 0);
    }
    assert_int_equal(identity_ask_key(id, STR("AKIAAAAAAAAAAAAAAAAA"), NS_PER_S, NULL),
                     -ENOENT);
    assert_int_equal(identity_ask_key(id, STR("iam/account/x/../y00"), NS_PER_S, NULL),
                     -ENOENT);
}

static void test_look_ups_follow_the_store(void **state)
{
    AUTO(identity_closep) struct identity *id = NULL;
    struct identity_new n, m;
    struct aws_key k;
    assert_int_equal(identity_create_account(kv, a, keys, STR("one"), &n, NULL), 0);
    assert_int_equal(identity_open(kv, keys, 5 * NS_PER_S, &id, NULL), 0);
    assert_int_equal(identity_find_key(id, a, n.key.id, &k, NULL), 0);
    assert_true(str_eq(k.secret, n.secret));
    assert_true(str_eq(k.who.account, n.account.id));
    assert_true(str_eq(k.who.user_id, n.user.id));
    assert_str(k.who.user_name, "admin");
    assert_true(
        str_eq(k.who.arn, arena_fmt(a, "arn:aws:iam::%.*s:user/admin", STR_ARG(n.account.id))));
    assert_true(k.is_active);
    assert_false(k.who.is_root);
    assert_int_equal(k.expires_ns, 0);

    static const char *const absent[] = {"",
                                         "AKIA",
                                         "AKIAAAAAAAAAAAAAAAAA",
                                         "akiaaaaaaaaaaaaaaaaa",
                                         "../user/x/yyyyyyyyyy",
                                         "AKIA/AAAAAAAAAAAAAAA"};
    for (size_t i = 0; i < ARRAY_LEN(absent); i++) {
        assert_int_equal(identity_find_key(id, a, str_c(absent[i]), &k, NULL), -ENOENT);
    }

    assert_int_equal(identity_create_account(kv, a, keys, STR("two"), &m, NULL), 0);
    assert_int_equal(identity_wait(id, kv_revision(kv), 5 * NS_PER_S), 0);
    assert_int_equal(identity_find_key(id, a, m.key.id, &k, NULL), 0);

    m.key.status = STR(ACCESS_KEY_INACTIVE);
    AUTO_BUF text;
    buf_init(&text, 10000);
    assert_int_equal(rec_save(&access_key_desc, &m.key, &text, NULL), 0);
    put(arena_cstr(a, key_access_key(a, m.key.id)), buf_cstr(&text));
    assert_int_equal(identity_wait(id, kv_revision(kv), 5 * NS_PER_S), 0);
    assert_int_equal(identity_find_key(id, a, m.key.id, &k, NULL), 0);
    assert_false(k.is_active);

    assert_int_equal(identity_delete_account(kv, m.account.id, NULL), 0);
    assert_int_equal(identity_wait(id, kv_revision(kv), 5 * NS_PER_S), 0);
    assert_int_equal(identity_find_key(id, a, m.key.id, &k, NULL), -ENOENT);
    assert_int_equal(identity_find_key(id, a, n.key.id, &k, NULL), 0);

    keys_lock(keys);
    struct err err = ERR_INIT;
    assert_int_equal(identity_find_key(id, a, n.key.id, &k, &err), -EACCES);
    assert_string_equal(err.name, "Locked");
    assert_int_equal(keys_unlock(keys, NULL), 0);
}

static void test_a_name_is_used_once(void **state)
{
    struct identity_new n;
    struct err err = ERR_INIT;
    assert_int_equal(identity_create_account(kv, a, keys, STR("one"), &n, NULL), 0);
    assert_int_equal(identity_create_account(kv, a, keys, STR("one"), &n, &err), -EEXIST);
    assert_string_equal(err.name, "AccountNameInUse");
    static const char *const bad[] = {"", "a/b", "tab\t", "\xc3\xa4",
                                      "123456789012345678901234567890123456789012345678901"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(identity_create_account(kv, a, keys, str_c(bad[i]), &n, NULL),
                         -EINVAL);
    }
    struct account_list l = {0};
    assert_int_equal(identity_list_accounts(kv, a, &l, NULL), 0);
    assert_int_equal(l.n, 1);
    assert_str(l.v[0].name, "one");
}

static void test_a_user_has_two_keys_at_most(void **state)
{
    struct identity_new n, m;
    struct access_key k;
    struct access_key_list l = {0};
    struct str secret = STR_NONE;
    struct err err = ERR_INIT;
    assert_int_equal(identity_create_account(kv, a, keys, STR("one"), &n, NULL), 0);
    assert_int_equal(identity_create_account(kv, a, keys, STR("two"), &m, NULL), 0);
    assert_int_equal(
        identity_create_key(kv, a, keys, n.account.id, STR("admin"), &k, &secret, NULL), 0);
    assert_int_equal(secret.n, 40);
    assert_false(str_eq(secret, n.secret));
    assert_int_equal(
        identity_create_key(kv, a, keys, n.account.id, STR("admin"), &k, &secret, &err),
        -E2BIG);
    assert_string_equal(err.name, "LimitExceeded");
    assert_int_equal(identity_list_keys(kv, a, n.account.id, &l, NULL), 0);
    assert_int_equal(l.n, 2);
    assert_int_equal(
        identity_create_key(kv, a, keys, n.account.id, STR("x"), &k, &secret, NULL), -ENOENT);
    assert_int_equal(
        identity_create_key(kv, a, keys, STR("000000000000"), STR("admin"), &k, &secret, NULL),
        -ENOENT);
}

static void test_deleting_says_what_is_left(void **state)
{
    struct identity_new n, m;
    struct err err = ERR_INIT;
    struct kv_item item;
    assert_int_equal(identity_create_account(kv, a, keys, STR("one"), &n, NULL), 0);
    assert_int_equal(identity_create_account(kv, a, keys, STR("two"), &m, NULL), 0);
    struct str id = n.account.id;
    put(arena_cstr(a, key_spec(a, "instance", id, STR("i-1"))), "{}");
    put(arena_cstr(a, key_spec(a, "instance", id, STR("i-2"))), "{}");
    put(arena_cstr(a, key_spec(a, "keypair", id, STR("me"))), "{}");
    put(arena_cstr(a, key_spec(a, "vpc", id, STR("vpc-1"))), "{}");
    put("claim/sgname/vpc-1/default", "sg-1");
    put("claim/sgname/vpc-2/default", "sg-2");
    put("claim/publicip/1.2.3.4",
        arena_cstr(a, arena_fmt(a, "{\"owner\":\"%.*s\"}", STR_ARG(id))));
    put("claim/publicip/1.2.3.5", "{\"owner\":\"eni-1\"}");
    put(arena_cstr(a, key_spec(a, "instance", m.account.id, STR("i-3"))), "{}");

    assert_int_equal(identity_delete_account(kv, id, &err), -EBUSY);
    assert_non_null(strstr(err.msg, "still has 2 instances, 1 key pair"));
    assert_int_equal(kv_get(kv, a, key_account(a, id), &item, NULL), 0);
    assert_true(str_find_str(item.value, STR("\"active\"")) >= 0);

    const struct kv_op gone[] = {
        {.type = KV_DELETE, .key = key_spec(a, "instance", id, STR("i-1"))},
        {.type = KV_DELETE, .key = key_spec(a, "instance", id, STR("i-2"))},
        {.type = KV_DELETE, .key = key_spec(a, "keypair", id, STR("me"))}};
    assert_int_equal(kv_txn(kv, NULL, 0, gone, ARRAY_LEN(gone), NULL, NULL), 0);
    assert_int_equal(identity_delete_account(kv, id, NULL), 0);
    /* What came with it is gone, what is others' is not. */
    assert_int_equal(kv_get(kv, a, STR("claim/sgname/vpc-1/default"), &item, NULL), -ENOENT);
    assert_int_equal(kv_get(kv, a, key_spec(a, "vpc", id, STR("vpc-1")), &item, NULL), -ENOENT);
    assert_int_equal(kv_get(kv, a, key_access_key(a, n.key.id), &item, NULL), -ENOENT);
    assert_int_equal(kv_get(kv, a, key_account_claim(a, STR("one")), &item, NULL), -ENOENT);
    assert_int_equal(kv_get(kv, a, STR("claim/publicip/1.2.3.4"), &item, NULL), -ENOENT);
    assert_int_equal(kv_get(kv, a, STR("claim/publicip/1.2.3.5"), &item, NULL), 0);
    assert_int_equal(kv_get(kv, a, STR("claim/sgname/vpc-2/default"), &item, NULL), 0);
    assert_int_equal(kv_get(kv, a, key_access_key(a, m.key.id), &item, NULL), 0);
    assert_int_equal(kv_get(kv, a, key_account_claim(a, STR("two")), &item, NULL), 0);
    assert_int_equal(identity_delete_account(kv, id, &err), -ENOENT);
    /* The name is free again. */
    assert_int_equal(identity_create_account(kv, a, keys, STR("one"), &n, NULL), 0);
}

static void test_deleting_that_was_cut_short_goes_on(void **state)
{
    struct identity_new n;
    struct account_list l = {0};
    assert_int_equal(identity_create_account(kv, a, keys, STR("one"), &n, NULL), 0);
    n.account.status = STR(ACCOUNT_CLOSING);
    AUTO_BUF text;
    buf_init(&text, 10000);
    assert_int_equal(rec_save(&account_desc, &n.account, &text, NULL), 0);
    put(arena_cstr(a, key_account(a, n.account.id)), buf_cstr(&text));

    AUTO(identity_closep) struct identity *id = NULL;
    struct aws_key k;
    assert_int_equal(identity_open(kv, keys, 5 * NS_PER_S, &id, NULL), 0);
    assert_int_equal(identity_find_key(id, a, n.key.id, &k, NULL), -ENOENT);
    assert_int_equal(identity_delete_account(kv, n.account.id, NULL), 0);
    assert_int_equal(identity_list_accounts(kv, a, &l, NULL), 0);
    assert_int_equal(l.n, 0);
}

#define WITH_STORE(t) cmocka_unit_test_setup_teardown(t, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_STORE(test_ids_look_as_they_should),
        WITH_STORE(test_look_ups_follow_the_store),
        WITH_STORE(test_a_key_that_is_too_new_can_be_asked_for),
        WITH_STORE(test_a_name_is_used_once),
        WITH_STORE(test_a_user_has_two_keys_at_most),
        WITH_STORE(test_deleting_says_what_is_left),
        WITH_STORE(test_deleting_that_was_cut_short_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
