// The newest SDK of AWS for JavaScript with its defaults: checksums, retries, middleware. Says "ok" at the end; anything else is an exception.
// ENDPOINT, BUCKET, PATH_STYLE ("1" or ""); keys and region as the SDK reads them from the environment.
import assert from "node:assert/strict";
import crypto from "node:crypto";
import { Readable } from "node:stream";
import {
  S3Client, CopyObjectCommand, CreateBucketCommand, DeleteBucketCommand, DeleteObjectCommand, DeleteObjectsCommand, GetObjectCommand,
  GetObjectTaggingCommand, HeadObjectCommand, ListBucketsCommand, ListObjectVersionsCommand, PutBucketVersioningCommand, PutObjectCommand,
  paginateListObjectsV2,
} from "@aws-sdk/client-s3";
import { Upload } from "@aws-sdk/lib-storage";
import { createPresignedPost } from "@aws-sdk/s3-presigned-post";
import { getSignedUrl } from "@aws-sdk/s3-request-presigner";

const { ENDPOINT, BUCKET: Bucket, PATH_STYLE } = process.env;
const s3 = new S3Client({ endpoint: ENDPOINT, forcePathStyle: Boolean(PATH_STYLE), maxAttempts: 1 });
const send = (command) => s3.send(command);
const bytes = async (body) => Buffer.from(await body.transformToByteArray());
const refused = async (status, name, command) => {
  await assert.rejects(send(command), (e) => {
    assert.equal(e.$metadata.httpStatusCode, status, String(e));
    assert.equal(e.name, name);
    return true;
  });
};

await send(new CreateBucketCommand({ Bucket }));
assert.ok((await send(new ListBucketsCommand({}))).Buckets.some((b) => b.Name === Bucket));

// Put and get, with what the SDK adds by itself.
const small = Buffer.from("hello, S3 \u00e4\u{1f600}\n");
const put = await send(new PutObjectCommand({
  Bucket, Key: "a folder/\u00fcmlaut + plus.txt", Body: small, ContentType: "text/plain; charset=utf-8", Metadata: { colour: "blue" }, Tagging: "a=1&b=two",
}));
assert.equal(put.ETag, `"${crypto.createHash("md5").update(small).digest("hex")}"`);
assert.ok(put.ChecksumCRC32 || put.ChecksumCRC64NVME, "the default checksum comes back");
const got = await send(new GetObjectCommand({ Bucket, Key: "a folder/\u00fcmlaut + plus.txt" }));
assert.deepEqual(await bytes(got.Body), small);
assert.equal(got.ContentType, "text/plain; charset=utf-8");
assert.deepEqual(got.Metadata, { colour: "blue" });
assert.equal(got.TagCount, 2);
const head = await send(new HeadObjectCommand({ Bucket, Key: "a folder/\u00fcmlaut + plus.txt", ChecksumMode: "ENABLED" }));
assert.equal(head.ContentLength, small.length);
assert.ok(head.ChecksumCRC32 || head.ChecksumCRC64NVME);
assert.deepEqual((await send(new GetObjectTaggingCommand({ Bucket, Key: "a folder/\u00fcmlaut + plus.txt" }))).TagSet.length, 2);
const part = await send(new GetObjectCommand({ Bucket, Key: "a folder/\u00fcmlaut + plus.txt", Range: "bytes=7-8" }));
assert.equal((await bytes(part.Body)).toString(), "S3");
for (const ChecksumAlgorithm of ["CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256"]) {
  const r = await send(new PutObjectCommand({ Bucket, Key: `sums/${ChecksumAlgorithm}`, Body: small, ChecksumAlgorithm }));
  assert.ok(r[`Checksum${ChecksumAlgorithm}`], ChecksumAlgorithm);
}
await refused(404, "NoSuchKey", new GetObjectCommand({ Bucket, Key: "nothing" }));
await refused(404, "NotFound", new HeadObjectCommand({ Bucket, Key: "nothing" }));
await refused(412, "PreconditionFailed", new PutObjectCommand({ Bucket, Key: "sums/SHA1", Body: "x", IfNoneMatch: "*" }));

// A stream whose length the SDK does not know: a multipart upload.
const big = crypto.randomBytes(12 * 1024 * 1024 + 77);
const pieces = () => Readable.from((function* () { for (let i = 0; i < big.length; i += 100_000) yield big.subarray(i, i + 100_000); })());
const done = await new Upload({ client: s3, params: { Bucket, Key: "big", Body: pieces() }, partSize: 5 * 1024 * 1024, queueSize: 3 }).done();
assert.match(done.ETag, /-3"$/);
const back = await send(new GetObjectCommand({ Bucket, Key: "big" }));
assert.ok((await bytes(back.Body)).equals(big));
await send(new PutObjectCommand({ Bucket, Key: "streamed", Body: pieces(), ContentLength: big.length })); // aws-chunked with a trailer
assert.ok((await bytes((await send(new GetObjectCommand({ Bucket, Key: "streamed" }))).Body)).equals(big));
await send(new CopyObjectCommand({ Bucket, Key: "copy", CopySource: `${Bucket}/${encodeURIComponent("a folder/\u00fcmlaut + plus.txt")}` }));
assert.deepEqual(await bytes((await send(new GetObjectCommand({ Bucket, Key: "copy" }))).Body), small);

// Lists.
for (let i = 0; i < 25; i++) await send(new PutObjectCommand({ Bucket, Key: `list/${String(i % 5)}/${i}`, Body: String(i) }));
const keys = [], prefixes = [];
for await (const page of paginateListObjectsV2({ client: s3, pageSize: 7 }, { Bucket, Prefix: "list/" })) {
  assert.ok(page.KeyCount <= 7);
  keys.push(...page.Contents.map((o) => o.Key));
}
assert.equal(new Set(keys).size, 25);
for await (const page of paginateListObjectsV2({ client: s3, pageSize: 2 }, { Bucket, Prefix: "list/", Delimiter: "/" })) {
  prefixes.push(...page.CommonPrefixes.map((p) => p.Prefix));
}
assert.deepEqual(prefixes, ["list/0/", "list/1/", "list/2/", "list/3/", "list/4/"]);

// Without keys: what was signed for others.
const url = await getSignedUrl(s3, new GetObjectCommand({ Bucket, Key: "copy" }), { expiresIn: 60 });
assert.deepEqual(Buffer.from(await (await fetch(url)).arrayBuffer()), small);
assert.equal((await fetch(url.replace(/Signature=(.)/, (_, c) => `Signature=${c === "0" ? "1" : "0"}`))).status, 403);
const form = await createPresignedPost(s3, {
  Bucket, Key: "posted/${filename}", Expires: 60, Fields: { "Content-Type": "text/plain" },
  Conditions: [["starts-with", "$key", "posted/"], ["content-length-range", 1, 100], ["eq", "$Content-Type", "text/plain"]],
});
const post = async (text) => {
  const data = new FormData();
  for (const [k, v] of Object.entries(form.fields)) data.append(k, v);
  data.append("file", new Blob([text]), "note.txt");
  return (await fetch(form.url, { method: "POST", body: data })).status;
};
assert.equal(await post("by a form"), 204);
assert.equal(await post("x".repeat(101)), 400);
assert.equal((await bytes((await send(new GetObjectCommand({ Bucket, Key: "posted/note.txt" }))).Body)).toString(), "by a form");

// Versions, and everything away.
await send(new PutBucketVersioningCommand({ Bucket, VersioningConfiguration: { Status: "Enabled" } }));
const v1 = await send(new PutObjectCommand({ Bucket, Key: "v", Body: "1" }));
const v2 = await send(new PutObjectCommand({ Bucket, Key: "v", Body: "2" }));
assert.notEqual(v1.VersionId, v2.VersionId);
assert.ok((await send(new DeleteObjectCommand({ Bucket, Key: "v" }))).DeleteMarker);
await refused(404, "NoSuchKey", new GetObjectCommand({ Bucket, Key: "v" }));
assert.equal((await bytes((await send(new GetObjectCommand({ Bucket, Key: "v", VersionId: v1.VersionId }))).Body)).toString(), "1");
await refused(409, "BucketNotEmpty", new DeleteBucketCommand({ Bucket }));
const all = await send(new ListObjectVersionsCommand({ Bucket }));
const Objects = [...all.Versions, ...all.DeleteMarkers].map(({ Key, VersionId }) => ({ Key, VersionId }));
const gone = await send(new DeleteObjectsCommand({ Bucket, Delete: { Objects } }));
assert.equal(gone.Deleted.length, Objects.length);
assert.equal(gone.Errors, undefined);
await send(new DeleteBucketCommand({ Bucket }));
console.log("ok");
