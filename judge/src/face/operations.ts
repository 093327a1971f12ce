/** Operators of NUMERICS 15.4 in everyday words. */

const WORDS: readonly (readonly [RegExp, string])[] = [
  [/^tallystick\.commit$/, "the signed summary at the end of the step"],
  [/^tallystick\.(?:adamw?|sgd)_step$/, "the update of the model's numbers"],
  [
    /^tallystick\.(?:beta_power|clip_coef|sum_squares)$/,
    "a part of the update of the model's numbers",
  ],
  [/^tallystick\.(?:uniform|normal|dropout_mask|mask_scale)$/, "a use of random numbers"],
  [
    /cross_entropy_backward|_loss_backward$/,
    "the way back from that measure to the numbers behind it",
  ],
  [/cross_entropy|mse_loss|nll_loss/, "the measure of how far the model's guesses are off"],
  [/_backward|embedding_dense/, "the calculation of how each number should change"],
  [/\.(?:mm|bmm|addmm)$/, "a product of two tables of numbers"],
  [/convolution|max_pool/, "a filter that is moved over an image"],
  [/batch_norm|layer_norm|var_mean/, "a calculation that brings numbers to a common scale"],
  [/\.(?:sum|mean|cumsum)(?:\.|$)|\.fold$/, "a sum or an average"],
  [
    /\.(?:amax|amin|argmax|max|min|maximum|minimum)$|\.rank$/,
    "a search for the greatest or least number",
  ],
  [/softmax/, "the turning of scores into probabilities"],
  [
    /\.(?:embedding|gather|index_select|index_add|scatter|slice|slice_scatter|cat)/,
    "a look-up or a copy of numbers",
  ],
  [
    /\.(?:view|permute|_to_copy|full|arange|where|tril|triu|masked_fill)(?:\.|$)/,
    "an arranging of numbers",
  ],
  [
    /\.(?:add|sub|mul|div|neg|floor_divide)(?:\.|$)/,
    "a simple sum, difference, product or quotient",
  ],
  [/\.(?:eq|ne|lt|le|gt|ge|logical_\w+|bitwise_\w+)(?:\.|$)/, "a comparison"],
];

/** What an operator does. */
export function inWords(operator: string): string {
  const found = WORDS.find(([pattern]) => pattern.test(operator));
  return found === undefined ? "a function of single numbers" : found[1];
}
