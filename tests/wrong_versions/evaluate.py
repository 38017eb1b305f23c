"""Wrong versions of pipelines/evaluate."""

from tests.wrong_versions import Wrong

WRONG = [
    Wrong(
        "fewer samples than were drawn for IWAE-k",
        "evaluate/bounds.py",
        "importance_bound(log_weights, k)",
        "importance_bound(log_weights[:k], k)",
        "evaluate/test_bounds.py::test_iwae_by_samples_is_that_of_the_log_weights",
        "pipelines",
    ),
    Wrong(
        "z of the encoder and of the prior exchanged",
        "evaluate/coin.py",
        "sequence.encoder_z = rounded(ones(model, model(copies, noise=noise).hidden))",
        "sequence.encoder_z = rounded(ones(model, model(copies, codes=prior).hidden))",
        "evaluate/test_coin.py::test_the_coin_is_shown_with_z_of_the_encoder_and_z_of_the_prior",
        "pipelines",
    ),
    Wrong(
        "z from the prior of the numbers that made the corpus",
        "evaluate/coin.py",
        "rng = generator(settings.seed, Purpose.COIN)",
        "rng = torch.Generator().manual_seed(settings.seed)",
        "evaluate/test_coin.py::test_z_from_the_prior_knows_nothing_of_the_hidden_sides",
        "pipelines",
    ),
    Wrong(
        "a probe asked about what it learned from",
        "evaluate/target_latent.py",
        "sample_with_starts(max(2, settings.probe_sequences // TRAINED), rng)",
        "(rows[::TRAINED], starts[::TRAINED])",
        "evaluate/test_target_latent.py::test_what_is_peculiar_to_the_sequences_learned_from_counts_for_nothing",
        "pipelines",
    ),
    Wrong(
        "offsets from the target's first character as it is read",
        "evaluate/target_latent.py",
        "PROMPT - 1 + starts",
        "PROMPT + starts",
        "evaluate/test_target_latent.py::test_the_start_is_known_from_z_as_soon_as_it_is_said",
        "pipelines",
    ),
    Wrong(
        "a reconstruction whose prompt has a z of its own",
        "evaluate/target_latent.py",
        "noise = 1 - 2 * bits.float()",
        "noise = torch.cat((0.5 + 0 * bits[:, :2], 1 - 2 * bits[:, 2:].float()), 1)",
        "evaluate/test_target_latent.py::test_the_decoder_is_given_these_codes_at_every_position",
        "pipelines",
    ),
]
