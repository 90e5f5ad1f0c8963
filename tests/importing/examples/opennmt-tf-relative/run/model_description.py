import opennmt

model = lambda: opennmt.models.Transformer(
    num_layers=2, num_units=64, num_heads=2, ffn_inner_dim=64, maximum_relative_position=8, position_encoder_class=None
)
