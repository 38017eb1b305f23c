// What llama.cpp makes of a GGUF file. Reads {folder, model, texts, prompts, count} from stdin, folder
// being that of an installed node-llama-cpp; writes JSON.
import {readFileSync} from "node:fs";
import {join} from "node:path";
import {pathToFileURL} from "node:url";

const asked = JSON.parse(readFileSync(0, "utf8"));
const entry = join(asked.folder, "node_modules/node-llama-cpp/dist/index.js");
const {getLlama} = await import(pathToFileURL(entry));
const llama = await getLlama({
    gpu: false,
    build: "never",
    skipDownload: true,
    logLevel: "error",
    maxThreads: 1, // more would wait for one another on cores that others use
});
const model = await llama.loadModel({modelPath: asked.model, defaultContextFlashAttention: false});
const texts = asked.texts.map((text) => model.tokenize(text));
const context = await model.createContext({
    contextSize: model.trainContextSize,
    threads: 1,
    experimentalKvCacheKeyType: "F32",
    experimentalKvCacheValueType: "F32",
});
const sequence = context.getSequence();
const continued = [];
for (const prompt of asked.prompts) {
    await sequence.clearHistory();
    const tokens = [];
    for await (const token of sequence.evaluate(prompt, {temperature: 0, yieldEogToken: true})) {
        if (tokens.push(token) === asked.count) break;
    }
    continued.push(tokens);
}
const answer = {
    texts,
    decoded: texts.map((tokens) => model.detokenize(tokens)),
    continued,
    begin: model.tokens.bos,
    prepends: model.tokens.shouldPrependBosToken,
    context: model.trainContextSize,
};
process.stdout.write(JSON.stringify(answer), () => process.exit(0));
