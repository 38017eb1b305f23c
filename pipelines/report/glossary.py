"""What may and may not be compared, term by term."""

NOTES = {
    "Reconstruction cross-entropy": "Its z comes from an encoder that has read the very tokens "
    "being scored. It is not a language-model loss: it can lie far below a baseline's for a model "
    "that is worse. Never compare it between arms.",
    "ELBO and IWAE": "Both are upper bounds on the negative log-likelihood (NLL), so the model is "
    "at least this good. ELBO is reconstruction cross-entropy + KL; IWAE-K weighs K samples of z "
    "and is tighter on average, the more so the larger K. A bound above a baseline's NLL shows no "
    "gain, but does not prove the model worse.",
    "Prior-sample bound": "z is drawn blindly, as in generation. A bound too, but usually a loose "
    "one: of a few random z hardly any suits the text.",
    "KL": "How many bits a token z carries about the text. It is a cost within the bounds, not a "
    "measure of quality.",
    "Standard errors and seeds": "± says how well trained models were measured on held-out "
    "documents. It says nothing of how far training with another seed would move the figure: that "
    "is the spread, the sample standard deviation over seeds. All arms are scored on the same "
    "documents: a difference’s error over documents is that of the differences document by "
    "document. Its error over seeds is that of two means of independent seeds, s √(1/n + 1/m) s "
    "being the spread within the two arms: runs of one seed read the data in the same order, but "
    "are not alike in anything else.",
    "Training curves": "They are taken on training batches while the model changes, and bound by "
    "ELBO. The held-out figures are the ones to quote.",
    "Bits per token and per byte": "Tokens differ between tokenizers, bytes do not. Figures on "
    "different data are not comparable at all.",
    "Parameters": "A Free Transformer has an encoder block and a table of 2^H embeddings on top of "
    "its baseline: the same blocks and token budget, not the same number of parameters. A baseline "
    "with one more block is the control for the block: what it gains too is not due to z. It has "
    "no table and as a rule fewer parameters, so that a gain beyond its own is more than a further "
    "block gives, and not yet more than as many parameters give.",
    "κ = 0": "A Free Transformer that pays for every bit from the first on. It has all the "
    "machinery and as good as no information in z, so it shows what the machinery itself costs.",
}
